"""Tables on disk: what they hold, by other libraries' readers; restarts, broken rows, full disks, other runs."""

import errno
import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import axiograd
from axiograd.datasets import TensorData
from axiograd.errors import InputError, NotHomogeneousError, StorageError
from axiograd.homogeneity import Certificate
from axiograd.scale import Attribute, Listed, Regions, Statistics, Windows, numpy_file, tensors, write_attributions
from support.children import processes
from support.scale import Slow, in_child, make, source, write

pq = pytest.importorskip("pyarrow.parquet")


def test_rows_are_what_x_gradient_gives(written):
    folder, x = written
    table = pq.read_table(folder)
    good = table.filter(table["error"].is_null())
    model = Slow()
    outputs = model(x)
    expected = axiograd.XGradient(model).attribute(x, outputs.argmax(1))
    windows = expected.sum(1).unflatten(1, (6, 2)).unflatten(3, (6, 2)).sum((2, 4)).flatten(1)
    np.testing.assert_allclose(np.stack(good["windows"].to_pylist()), windows.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(good["score"].to_numpy(), outputs.amax(1).detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(good["total"].to_numpy(), expected.flatten(1).sum(1).numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(good["total"].to_numpy(), good["difference"].to_numpy(), rtol=1e-4, atol=1e-5)
    assert table["row"].to_pylist() == list(range(40))
    assert good["prediction"].to_pylist() == outputs.argmax(1).tolist()


def test_a_broken_image_is_a_row_with_an_error(written):
    table = pq.read_table(written[0])
    row = table.slice(3, 1).to_pylist()[0]
    assert row["error"] == "DamagedImageError: image 3 cannot be decoded."
    assert row["name"] == "image 3"
    assert [row[name] for name in ("windows", "score", "target")] == [None, None, None]
    assert table["error"].null_count == 39


def test_numbers_that_are_not_finite_are_a_row_with_an_error(tmp_path):
    samples = source()
    samples.get.x[5, 0, 0, 0] = torch.nan
    write(tmp_path, samples)
    errors = pq.read_table(tmp_path)["error"].to_pylist()
    assert [i for i, error in enumerate(errors) if error] == [5]
    assert errors[5].startswith("NotFiniteError")


def test_the_file_says_where_its_rows_are_from(written):
    folder, _ = written
    read = [json.loads(pq.read_schema(part).metadata[b"axiograd"]) for part in sorted(folder.glob("*.parquet"))]
    assert all(one == read[0] for one in read)
    certificate = Certificate.from_json(json.dumps(read[0]["certificate"]))
    assert (certificate.ok, certificate.degree) == (True, 1.0)
    assert read[0]["method"]["name"] == "x-gradient"
    assert read[0]["baseline"] == "zero"
    assert read[0]["model"]["sha256"] == axiograd.export.weights_hash(Slow())
    assert read[0]["versions"]["torch"] == torch.__version__


def test_duckdb_and_pandas_read_it(written):
    import duckdb
    import pandas as pd

    folder, _ = written
    rows = duckdb.sql(f"select count(*), count(error), sum(total) from '{folder}/*.parquet'").fetchall()[0]
    assert rows[:2] == (40, 1)
    frame = pd.read_parquet(folder)
    np.testing.assert_allclose(rows[2], frame["total"].sum())
    assert len(frame["windows"].iloc[0]) == 36


def test_statistics_are_those_of_numpy(written):
    table = pq.read_table(written[0])
    good = table.filter(table["error"].is_null())
    found = Statistics.of(written[0])
    assert (found.rows, found.errors) == (40, 1)
    target = good["target"].to_numpy()
    for rows, means in [(target == one, found.classes[int(one)]) for one in np.unique(target)] + [
        (target >= 0, found.all)
    ]:
        assert means["rows"] == rows.sum()
        for name in ("gini", "score", "total", "share_corner"):
            values = good[name].to_numpy()[rows].astype(float)
            assert means[name]["mean"] == pytest.approx(values.mean())
            assert means[name]["se"] == pytest.approx(values.std(ddof=1) / np.sqrt(len(values)))
    difference = good["difference"].to_numpy()
    gap = good["total"].to_numpy() - difference
    assert found.completeness == pytest.approx(np.sqrt((gap**2).sum() / (difference**2).sum()))
    assert found.accuracy == (good["label"].to_numpy() == good["prediction"].to_numpy()).mean()


def test_statistics_of_one_row_are_json(tmp_path):
    one = Listed("one", ["a"], torch.ones(1, 4).__getitem__)
    found = write_attributions(Attribute(nn.Linear(4, 2, bias=False)), one, tmp_path)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["all"]["gini"]["se"] is None


def test_a_killed_process_is_continued_and_no_row_comes_twice(tmp_path):
    write(tmp_path / "whole")
    child = processes().Process(target=in_child, args=(tmp_path / "killed", 0.05))
    child.start()
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "killed").glob("part-*.parquet"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    child.kill()
    child.join()
    parts = {part.name: part.stat().st_mtime_ns for part in (tmp_path / "killed").glob("part-*.parquet")}
    assert parts
    found = write(tmp_path / "killed")
    assert found.rows == 40
    for name, when in parts.items():
        assert (tmp_path / "killed" / name).stat().st_mtime_ns == when
    a, b = (pq.read_table(tmp_path / name) for name in ("whole", "killed"))
    assert a.equals(b)
    assert a.schema.equals(b.schema, check_metadata=True)


def test_a_part_that_was_deleted_is_made_again(tmp_path):
    write(tmp_path)
    before = pq.read_table(tmp_path)
    (tmp_path / "part-000002.parquet").unlink()
    (tmp_path / ".part-000002.parquet.0123abcd").write_bytes(b"left by a killed worker")
    write(tmp_path)
    assert pq.read_table(tmp_path).equals(before)
    assert not list(tmp_path.glob(".part-*"))


def test_a_full_disk_is_a_sentence_and_what_is_there_stays(tmp_path, monkeypatch):
    import pyarrow.parquet

    real = pyarrow.parquet.write_table

    def full(table, where, **options):
        if "part-000002" in str(where):
            Path(where).write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device", str(where))
        real(table, where, **options)

    monkeypatch.setattr(pyarrow.parquet, "write_table", full)
    with pytest.raises(StorageError, match=r"No space left on device\. Free some space .* resumes from them\.$"):
        write(tmp_path)
    assert len(pq.read_table(tmp_path)) == 16
    monkeypatch.undo()
    write(tmp_path)
    assert pq.read_table(tmp_path)["row"].to_pylist() == list(range(40))


def test_other_settings_are_refused_by_name(tmp_path):
    write(tmp_path)
    other = Attribute(Slow(), "input-x-gradient", summary=make().summaries)
    with pytest.raises(StorageError, match=r"method\.name \(there: x-gradient, here: input-x-gradient\)"):
        write_attributions(other, source(), tmp_path, batch_size=4, part_rows=8, progress=False)
    with pytest.raises(StorageError, match=r"rows \(there: 40, here: 41\)"):
        write(tmp_path, source(41))
    with pytest.raises(StorageError, match=r"rows \(there: 40, here: 8\)"):
        write(tmp_path, limit=8)


def test_other_rows_under_the_same_name_are_refused(tmp_path):
    """Other tensors, one changed number in a data set, and another file of the same size."""
    write(tmp_path / "a")
    with pytest.raises(StorageError, match=r"data\.inputs"):
        write(tmp_path / "a", source(seed=1))
    attribute, x = Attribute(nn.Linear(4, 2, bias=False)), torch.rand(500, 4)
    y = torch.zeros(500, dtype=torch.long)
    write_attributions(attribute, tensors(TensorData(x.clone(), y, "rows")), tmp_path / "b")
    write_attributions(attribute, tensors(TensorData(x.clone(), y, "rows")), tmp_path / "b")
    x[123, 2] += 1
    with pytest.raises(StorageError, match=r"data\.version"):
        write_attributions(attribute, tensors(TensorData(x, y, "rows")), tmp_path / "b")
    for folder in "cd":
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "x.npy", x.numpy())
        x[321, 1] += 1
    write_attributions(attribute, numpy_file(tmp_path / "c/x.npy"), tmp_path / "out")
    with pytest.raises(StorageError, match=r"data\.version"):
        write_attributions(attribute, numpy_file(tmp_path / "d/x.npy"), tmp_path / "out")


def test_a_model_that_is_not_homogeneous_is_refused_before_anything_is_written(tmp_path):
    model = nn.Sequential(nn.Flatten(), nn.Linear(288, 2))
    with pytest.raises(NotHomogeneousError):
        write_attributions(Attribute(model), source(), tmp_path / "none", progress=False)
    assert not (tmp_path / "none").exists()


def test_what_is_wrong_with_all_samples_is_said_before_the_work(tmp_path):
    model = nn.Linear(4, 2, bias=False)
    rows = Listed("four", list("abcd"), torch.ones(4, 4).__getitem__)
    far = Attribute(model, summary=Regions({"far": (20, 0, 30, 1)}))
    with pytest.raises(InputError, match=r"none of the first 4 samples can be attributed.*region far covers no pixel"):
        write_attributions(far, rows, tmp_path / "out")
    with pytest.raises(InputError, match=r"does not take the shape \(3,\)"):
        write_attributions(Attribute(model), Listed("three", ["a"], torch.ones(1, 3).__getitem__), tmp_path / "out")
    with pytest.raises(InputError, match="none of the first 4 samples"):
        write(tmp_path / "out", source(4, broken=(0, 1, 2, 3)))
    with pytest.raises(InputError, match="no rows"):
        write(tmp_path / "out", Listed("nothing", [], list.__getitem__))
    assert not (tmp_path / "out").exists()


def test_rows_are_below_four_kilobytes_by_default(tmp_path):
    x = torch.randn(64, 3, 227, 227)
    layers = nn.Conv2d(3, 4, 11, 8, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    model = nn.Sequential(*layers, nn.Linear(4, 5, bias=False))
    samples = Listed("photos", [f"photo-{i:06d}.jpg" for i in range(64)], x.__getitem__)
    assert write_attributions(Attribute(model), samples, tmp_path, progress=False).completeness < 1e-5
    assert sum(part.stat().st_size for part in tmp_path.glob("*.parquet")) / 64 <= 4096


def test_images_of_several_sizes(tmp_path):
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 4, 3, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    model = nn.Sequential(*layers, nn.Linear(4, 2, bias=False))
    images = [torch.rand(1, 8 + 4 * (i // 3), 8) for i in range(9)]
    samples = Listed("sizes", [str(i) for i in range(9)], images.__getitem__)
    found = write_attributions(Attribute(model, summary=Windows(4)), samples, tmp_path, batch_size=4)
    assert (found.rows, found.errors) == (9, 0)
    assert pq.read_table(tmp_path)["grid"].to_pylist() == [[2 + i // 3, 2] for i in range(9)]
