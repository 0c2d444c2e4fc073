import json

import pytest

from axiograd.cli.classes import ClassNames, read_names
from axiograd.errors import DataMissingError, StorageError


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "cat\nblack_dog\n"),
        ("a.json", json.dumps(["cat", "black_dog"])),
        ("b.json", json.dumps({"1": "black_dog", "0": "cat"})),
        ("c.json", json.dumps({"0": ["n01", "cat"], "1": ["n02", "black_dog"]})),
    ],
)
def test_files_of_names(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    names = ClassNames(read_names(tmp_path / name))
    assert [names[i] for i in range(3)] == ["cat", "black dog", "class 2"]


def test_damaged_and_missing_files(tmp_path):
    with pytest.raises(DataMissingError):
        read_names(tmp_path / "no.txt")
    for content in ("{", "3", '{"a": "b"}'):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(StorageError):
            read_names(tmp_path / "x.json")


def test_names_of_the_data_only_where_their_number_fits():
    assert ClassNames.find(None, ("a", "b"), 2, "mlp")[1] == "b"
    assert ClassNames.find(None, ("a", "b"), 3, "mlp")[1] == "class 1"
