"""Rows from files as people have them: ragged, unlabelled, of several sizes, spread over files that differ."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from axiograd.errors import ConfigurationError, InputError, StorageError
from axiograd.scale import Attribute, Listed, numpy_file, parquet_files, write_attributions

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
    found = run(model, parquet_files(table(x=[whole, [1.0] * 3, None, nan, whole])), tmp_path / "out")
    errors = pq.read_table(tmp_path / "out")["error"].to_pylist()
    assert (found.rows, found.errors) == (5, 3)
    assert errors[0] is errors[4] is None
    assert errors[1].startswith("InputError: the model does not take the shape (3,): ")
    assert "mat1 and mat2" in errors[1]
    assert errors[2] == "InputError: there is no value."
    assert errors[3].startswith("NotFiniteError")


def test_what_a_readers_function_raises_is_that_rows_error(model, tmp_path):
    def get(place):
        if place == 1:
            raise ValueError("no such image")
        return torch.ones(4)

    run(model, Listed("read", ["a", "b", "c"], get), tmp_path)
    assert pq.read_table(tmp_path)["error"].to_pylist() == [None, "ValueError: no such image", None]


def test_labels(table, model, tmp_path):
    x = [[1.0, 2.0, 3.0, 4.0]] * 3
    run(model, parquet_files(table(x=x, label=[1.0, None, 0.0])), tmp_path / "some")
    assert pq.read_table(tmp_path / "some")["label"].to_pylist() == [1, None, 0]
    # Words in a column that nobody named are no labels; named, they are refused, and so is half a class.
    words = table("words.parquet", x=x, label=["cat", "dog", "cat"])
    assert parquet_files(words).labels is None
    with pytest.raises(InputError, match="the label 'cat'"):
        run(model, parquet_files(words, label="label"), tmp_path / "out")
    with pytest.raises(InputError, match=r"the label '1\.5'"):
        run(model, parquet_files(table("half.parquet", x=x, label=[0.0, 1.0, 1.5])), tmp_path / "out")
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    np.save(tmp_path / "y.npy", np.array([0.5, 0.0]))
    with pytest.raises(InputError, match=r"the label '0\.5'"):
        run(model, numpy_file(tmp_path / "x.npy", labels=tmp_path / "y.npy"), tmp_path / "out")


def test_a_file_without_the_column_has_rows_with_an_error(table, model, tmp_path):
    table("many/a.parquet", x=[[1.0] * 4] * 2)
    path = table("many/b.parquet", y=[[1.0] * 4])
    run(model, parquet_files(path.parent), tmp_path / "out")
    assert pq.read_table(tmp_path / "out")["error"].to_pylist() == [None, None, "InputError: there is no value."]
    with pytest.raises(ConfigurationError, match="say which one holds the inputs"):
        parquet_files(table("z.parquet", z=[1]))
    with pytest.raises(ConfigurationError, match="--column q: "):
        parquet_files(path, column="q")


def test_other_rows_of_parquet_are_refused(table, model, tmp_path):
    x = np.random.default_rng(0).normal(size=(9, 4))
    run(model, parquet_files(table(x=x.tolist())), tmp_path / "out")
    run(model, parquet_files(table(x=x.tolist())), tmp_path / "out")
    x[4, 2] += 1
    with pytest.raises(StorageError, match=r"data\.version"):
        run(model, parquet_files(table(x=x.tolist())), tmp_path / "out")


def test_rows_of_row_groups_come_in_order(table):
    source = parquet_files(table(x=[[float(i)] for i in range(12)], rows_of_group=5))
    assert source.read(range(12))[0] == [[float(i)] for i in range(12)]
    assert source.read([11, 0, 5])[0] == [[11.0], [0.0], [5.0]]


def test_folders_are_the_same_in_every_process(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(model, Listed("one", ["a"], torch.ones(1, 4).__getitem__), Path("out"))
    assert (tmp_path / "out/part-000000.parquet").is_file()
