import json
from pathlib import Path

import pytest

from axiograd.cli.classes import ClassNames, read_names
from axiograd.datasets.sources import TINY_20_WNIDS
from axiograd.errors import ConfigurationError, DataMissingError, StorageError, TargetError


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
    names = ClassNames.find(tmp_path / name, (), 2, "")
    assert [names[i] for i in range(3)] == ["cat", "black dog", "class 2"]


def test_damaged_and_missing_files(tmp_path):
    with pytest.raises(DataMissingError):
        read_names(tmp_path / "no.txt", 3)
    for content in ("{", "3", '{"a": "b"}'):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(StorageError):
            read_names(tmp_path / "x.json", 3)


def test_names_of_the_data_only_where_their_number_fits():
    assert ClassNames.find(None, ("a", "b"), 2, "mlp")[1] == "b"
    assert ClassNames.find(None, ("a", "b"), 3, "mlp")[1] == "class 1"


def test_a_file_of_another_length_is_an_error(tmp_path):
    file = tmp_path / "names.txt"
    for content in ("a\nb\n", "a\nb\nc\nd\n", ""):
        file.write_text(content)
        with pytest.raises(ConfigurationError, match=r"names, and the model 3 outputs"):
            ClassNames.find(file, (), 3, "")
    file.write_text("a\nb\nc\n\n")
    assert ClassNames.find(file, (), 3, "")[2] == "c"


def test_labels_are_not_rewritten():
    """Twenty classes of somebody's own are not every tenth of two hundred."""
    own = tuple(f"own{i}" for i in range(20))
    for known in ("resnet18", ""):
        assert ClassNames.find(None, own, 200, known).match([0, 1, 19], own, 200) is None


def test_the_twenty_classes_of_tiny_imagenet_are_matched_by_wnid():
    names = ClassNames.find(None, (), 200, "resnet18")
    assert names[30] == "tabby"
    assert names.match([0, 3], TINY_20_WNIDS, 200) == [0, 30]
    assert names.match([0, 3], [*TINY_20_WNIDS[:3], "n02444819"], 200) is None


def test_the_thousand_names_are_part_of_the_package():
    names = ClassNames.find(None, (), 1000, "xsqueezenet1_1")
    assert (names[0], names[360], names[999]) == ("tench", "otter", "toilet tissue")
    assert names.index("otter") == names.index("OTTER") == names.index("n02444819") == 360
    assert ClassNames.find(Path("imagenet"), (), 1000, "")[360] == "otter"
    with pytest.raises(TargetError, match=r"did you mean 'otter'"):
        names.index("oter")
    with pytest.raises(TargetError, match="the classes 134, 517 have that name"):
        names.index("crane")
    with pytest.raises(TargetError, match="have no names here"):
        ClassNames.find(None, (), 1000, "").index("otter")
