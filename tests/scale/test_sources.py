"""Rows from files as people have them: ragged, unlabelled, of several sizes, spread over files that differ."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from axiograd.errors import ConfigurationError, InputError
from axiograd.scale import Attribute, Listed, NumpyFile, ParquetFiles, Regions, Statistics, Windows, write_attributions

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402


@pytest.fixture
def table(tmp_path):
    """Writes columns to a Parquet file, with small row groups."""

    def write(name="rows.parquet", rows_of_group=3, **columns):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), tmp_path / name, row_group_size=rows_of_group)
        return tmp_path / name

    return write


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Linear(4, 2, bias=False)


def run(model, source, out, **options):
    return write_attributions(Attribute(model, **options), source, out, batch_size=2, progress=False)


def test_what_one_sample_does_is_that_rows_error(table, model, tmp_path):
    whole, nan = [1.0, 2.0, 3.0, 4.0], [float("nan")] * 4
    found = run(model, ParquetFiles(table(x=[whole, [1.0] * 3, None, nan, whole])), tmp_path / "out")
    errors = pq.read_table(tmp_path / "out")["error"].to_pylist()
    assert (found.rows, found.errors) == (5, 3)
    assert errors[0] is errors[4] is None
    assert errors[1].startswith("RuntimeError for the shape (3,): ")
    assert "mat1 and mat2" in errors[1]
    assert errors[2] == "there is no value"
    assert errors[3].startswith("NotFiniteError")


def test_what_a_readers_function_raises_is_that_rows_error(model, tmp_path):
    def get(place):
        if place == 1:
            raise ValueError("no such image")
        return torch.ones(4)

    run(model, Listed("read", ["a", "b", "c"], get), tmp_path)
    assert pq.read_table(tmp_path)["error"].to_pylist() == [None, "ValueError: no such image", None]


def test_what_is_wrong_with_all_samples_is_said_before_the_work(model, tmp_path):
    rows = Listed("four", list("abcd"), torch.ones(4, 4).__getitem__)
    with pytest.raises(InputError, match=r"none of the first 4 samples can be attributed.*region far covers no pixel"):
        run(model, rows, tmp_path / "out", summary=Regions({"far": (20, 0, 30, 1)}))
    with pytest.raises(InputError, match=r"does not take the shape \(3,\)"):
        run(model, Listed("three", ["a"], torch.ones(1, 3).__getitem__), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_labels(table, model, tmp_path):
    x = [[1.0, 2.0, 3.0, 4.0]] * 3
    assert ParquetFiles(table(x=x, label=[1.0, None, 0.0])).read(0, 3).labels == [1, None, 0]
    # Words in a column that nobody named are no labels; named, they are refused, and so is half a class.
    words = table("words.parquet", x=x, label=["cat", "dog", "cat"])
    assert ParquetFiles(words).read(0, 3).labels == [None] * 3
    with pytest.raises(ConfigurationError, match="--label label: the column holds string"):
        ParquetFiles(words, label="label")
    with pytest.raises(InputError, match=r"the label '1\.5'"):
        run(model, ParquetFiles(table("half.parquet", x=x, label=[0.0, 1.0, 1.5])), tmp_path / "out")
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    np.save(tmp_path / "y.npy", np.array([0.0, 0.5]))
    with pytest.raises(InputError, match=r"the label '0\.5'"):
        NumpyFile(tmp_path / "x.npy", labels=tmp_path / "y.npy").read(0, 2)


def test_a_file_without_the_column_is_named(table):
    table("many/a.parquet", x=[[1.0]])
    path = table("many/b.parquet", y=[[1.0]])
    with pytest.raises(ConfigurationError, match=r"b\.parquet has no column 'x'"):
        ParquetFiles(path.parent)


def test_a_row_group_is_read_once(table, monkeypatch):
    path = table(x=[[float(i)] for i in range(12)], rows_of_group=6)
    source, read = ParquetFiles(path), []
    real = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda file, group, **how: (read.append(group), real(file, group, **how))[1]
    )
    values = [float(one) for start in range(0, 12, 2) for one in source.read(start, start + 2).inputs]
    assert values == [float(i) for i in range(12)]
    assert read == [0, 1]


def test_images_of_several_sizes_have_rows_and_no_mean_map(tmp_path):
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(1, 4, 3, bias=False),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2, bias=False),
    )
    images = [torch.rand(1, 8 + 4 * (i // 3), 8) for i in range(9)]
    source = Listed("sizes", [str(i) for i in range(9)], images.__getitem__)
    options = {"batch_size": 3, "part_rows": 3, "progress": False}
    found = write_attributions(Attribute(nn.Sequential(*layers), summary=Windows(4)), source, tmp_path, **options)
    assert (found.rows, found.errors, found.mapped) == (9, 0, False)
    assert "windows" not in next(iter(found.classes.values()))
    np.testing.assert_allclose(found.over("gini").mean, pq.read_table(tmp_path)["gini"].to_numpy().mean())
    # In one table, too, and in another order.
    whole = Statistics()
    whole.update(pq.read_table(tmp_path))
    assert whole.to_dict()["all"].keys() == found.to_dict()["all"].keys()


def test_statistics_of_one_row_are_json(model, tmp_path):
    run(model, Listed("one", ["a"], torch.ones(1, 4).__getitem__), tmp_path)

    def refuse(word):
        raise AssertionError(word)

    told = json.loads((tmp_path / "_statistics.json").read_text(), parse_constant=refuse)
    assert told["all"]["gini"]["se"] is None


def test_folders_are_the_same_in_every_process(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(model, Listed("one", ["a"], torch.ones(1, 4).__getitem__), Path("out"))
    assert (tmp_path / "out/part-000000.parquet").is_file()
