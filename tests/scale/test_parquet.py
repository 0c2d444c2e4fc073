"""Tables on disk: what they hold, by other libraries' readers; restarts, broken rows, full disks, other runs."""

import errno
import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import axiograd
from axiograd.errors import ConfigurationError, InputError, NotHomogeneousError, StorageError, TargetError
from axiograd.homogeneity import Certificate
from axiograd.scale import Attribute, Listed, Pixels, Statistics, Windows, write_attributions
from axiograd.scale.engines import PartWork
from axiograd.scale.folder import Folder
from axiograd.scale.table import provenance_of
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
    np.testing.assert_allclose(good["score"].to_numpy(), outputs.amax(1).detach().numpy(), rtol=1e-5)
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
    told = [provenance_of(pq.read_schema(part), part) for part in sorted(folder.glob("*.parquet"))]
    assert all(one == told[0] for one in told)
    certificate = Certificate.from_json(json.dumps(told[0]["certificate"]))
    assert (certificate.ok, certificate.degree) == (True, 1.0)
    assert told[0]["method"]["name"] == "x-gradient"
    assert told[0]["baseline"] == "zero"
    assert told[0]["model"]["sha256"] == axiograd.export.weights_hash(Slow())
    assert told[0]["versions"]["torch"] == torch.__version__


def test_duckdb_and_pandas_read_it(written):
    import duckdb

    folder, _ = written
    rows = duckdb.sql(f"select count(*), count(error), sum(total) from '{folder}/*.parquet'").fetchall()[0]
    table = pq.read_table(folder)
    assert rows[:2] == (40, 1)
    np.testing.assert_allclose(rows[2], np.nansum(table["total"].to_numpy()))
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(folder)
    assert len(frame) == 40
    assert len(frame["windows"].iloc[0]) == 36


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


def test_another_run_is_refused_by_name(tmp_path):
    write(tmp_path)
    other = Attribute(Slow(), "input-x-gradient", summary=make().summaries)
    with pytest.raises(StorageError, match=r"method \(there: x-gradient, here: input-x-gradient\)"):
        write_attributions(other, source(), tmp_path, batch_size=4, part_rows=8, progress=False)
    with pytest.raises(StorageError, match=r"data\.rows \(there: 40, here: 41\)"):
        write(tmp_path, source(41))


def test_targets(tmp_path):
    x = torch.randn(3, 4)
    model = torch.nn.Linear(4, 2, bias=False)
    data = {"image": x.numpy(), "label": np.array([1, 0, 7])}
    labelled = Attribute(model, target="label")(data)
    assert labelled["target"].to_pylist() == [1, 0, None]
    assert "the label is 7" in labelled["error"][2].as_py()
    fixed = Attribute(model, target=1)(data)
    np.testing.assert_allclose(fixed["score"].to_numpy(), model(x)[:, 1].detach().numpy(), rtol=1e-5)
    single = Attribute(torch.nn.Linear(4, 1, bias=False))(data)
    assert set(single["prediction"].to_pylist()) <= {0, 1}
    with pytest.raises(TargetError, match="classes 0 to 1"):
        Attribute(model, target=2)(data)
    with pytest.raises(TargetError, match="no column"):
        Attribute(model, target="label")({"image": x.numpy()})
    with pytest.raises(InputError, match="say column="):
        Attribute(model)({"pixels": x.numpy()})


def test_difference_is_to_the_output_at_zero():
    x = torch.randn(5, 4)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    table = Attribute(model, "integrated-gradients", steps=64, column="x")({"x": x.numpy()})
    target = model(x).argmax(1)
    rows = torch.arange(5)
    expected = (model(x)[rows, target] - model(torch.zeros(1, 4)).expand(5, 3)[rows, target]).detach().numpy()
    np.testing.assert_allclose(table["difference"].to_numpy(), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(table["total"].to_numpy(), expected, rtol=1e-3, atol=1e-5)


def test_a_method_that_draws_gives_the_same_rows_wherever_they_are_computed():
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)), torch.randn(6, 4)
    how = {"method": "expected-gradients", "references": torch.randn(9, 4), "steps": 2, "column": "x"}
    first = Attribute(model, **how)
    first({"x": x.flip(0).numpy()})
    assert first({"x": x.numpy()}).equals(Attribute(model, **how)({"x": x.numpy()}))


def test_a_model_that_is_not_homogeneous_is_refused_before_anything_is_written(tmp_path):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(288, 2))
    with pytest.raises(NotHomogeneousError):
        write_attributions(Attribute(model), source(), tmp_path / "none", progress=False)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [({"engine": "spark"}, "plain, ray"), ({"workers": 2}, "engine='ray'"), ({"batch_size": 0}, "at least 1")],
)
def test_settings_that_cannot_work(tmp_path, options, words):
    with pytest.raises(ConfigurationError, match=words):
        write(tmp_path, **options)


def test_all_broken_and_none(tmp_path):
    with pytest.raises(InputError, match="none of the first 4 samples"):
        write(tmp_path, source(4, broken=(0, 1, 2, 3)))
    with pytest.raises(axiograd.AxiogradError, match="no rows"):
        write(tmp_path, Listed("nothing", [], list.__getitem__))


def test_rows_are_below_four_kilobytes_by_default(tmp_path):
    x = torch.randn(64, 3, 227, 227)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 11, 8, bias=False), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)
    )
    model = torch.nn.Sequential(model, torch.nn.Flatten(), torch.nn.Linear(4, 5, bias=False))
    samples = Listed("photos", [f"photo-{i:06d}.jpg" for i in range(64)], x.__getitem__)
    write_attributions(Attribute(model), samples, tmp_path, progress=False)
    assert sum(part.stat().st_size for part in tmp_path.glob("*.parquet")) / 64 <= 4096
    assert isinstance(Attribute(model).summaries[0], Windows)
    assert Statistics.of(tmp_path).completeness < 1e-5


def test_columns_and_labels_that_would_be_lost_are_refused():
    model, x = torch.nn.Linear(4, 2, bias=False), torch.randn(2, 4).numpy()
    with pytest.raises(ConfigurationError, match="column 'score', which the attribution writes too"):
        Attribute(model)({"image": x, "score": np.ones(2)})
    assert "score" in Attribute(model, keep=())({"image": x, "score": np.ones(2)}).column_names
    with pytest.raises(InputError, match="the label 'cat'"):
        Attribute(model)({"image": x, "label": np.array(["cat", "dog"])})
    assert Attribute(model)({"image": x, "label": np.array([1.0, np.nan])})["label"].to_pylist() == [1, None]


class Strided(torch.nn.Module):
    """It reads memory as it lies, or as a view, and so knows one order of it only."""

    def __init__(self, how):
        super().__init__()
        torch.manual_seed(0)
        self.convolution, self.last, self.how = (
            torch.nn.Conv2d(3, 4, 3, bias=False),
            torch.nn.Linear(108, 2, False),
            how,
        )

    def forward(self, x):
        flat = x.view(len(x), -1) if self.how == "view" else x.as_strided((len(x), 108), (108, 1))
        return self.last(flat) + self.convolution(x).sum((1, 2, 3))[:, None]


@pytest.mark.parametrize("how", ["view", "strides"])
def test_a_model_that_knows_one_order_of_memory_gets_it(how):
    x, model = torch.randn(3, 3, 6, 6), Strided(how)
    table = Attribute(model, "input-x-gradient", target=1, summary=Pixels())({"image": x.numpy()})
    expected = axiograd.InputXGradient(model).attribute(x, 1).flatten(1).numpy()
    np.testing.assert_allclose(np.stack(table["attributions"].to_pylist()), expected, rtol=1e-4, atol=1e-6)


def test_a_worker_with_another_model_writes_nothing(tmp_path):
    def unseeded():
        return Attribute(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(288, 2, bias=False)))

    work = PartWork(unseeded, source(), Folder(tmp_path), 40, 8, 4, unseeded().provenance())
    with pytest.raises(ConfigurationError, match="other weights than the process that started it"):
        work.part(0)
    assert not list(tmp_path.iterdir())
