"""`axiograd attribute` and `axiograd compare`, from files to exit codes."""

import io
import shutil

import numpy as np
import pytest
import torch

from axiograd.cli.attribute import read_summaries
from axiograd.errors import ConfigurationError
from support.command import axiograd

pq = pytest.importorskip("pyarrow.parquet")
HOW = ("--size", "16", "--mean", "0.5", "--std", "0.5", "-m", "input-x-gradient")


def test_a_folder_of_photos(mine, photos, tmp_path):
    (photos / "owl" / "torn.png").write_bytes((photos / "owl" / "owl0.png").read_bytes()[:200])
    done = axiograd("attribute", f"{mine}:build", "--data", photos, "--out", tmp_path / "rows", *HOW, "--json")
    assert (done.code, done.json["rows"], done.json["errors"]) == (0, 7, 1)
    table = pq.read_table(tmp_path / "rows")
    assert table["label"].to_pylist() == [0, 0, 1, 1, 2, 2, 2]
    assert [
        name for name, error in zip(table["name"].to_pylist(), table["error"].to_pylist(), strict=True) if error
    ] == ["owl/torn.png"]
    assert (
        "1 rows could not be read"
        in axiograd("attribute", f"{mine}:build", "--data", photos, "--out", tmp_path / "rows", *HOW).out
    )
    other = axiograd("attribute", f"{mine}:build", "--data", photos, "--out", tmp_path / "rows", *HOW, "--target", "1")
    assert (other.code, "target (there: predicted, here: 1)" in other.err) == (3, True)


def test_x_gradient_refuses_what_is_not_an_x_dnn(mine, photos, tmp_path):
    done = axiograd("attribute", f"{mine}:build", "--data", photos, "--out", tmp_path / "rows", "--size", "16")
    assert done.code == 1
    assert "not certified" in done.err
    assert not (tmp_path / "rows").exists()


def test_a_table_and_the_names_of_its_features(mine, table, tmp_path):
    options = ("--label", "ill", "--drop", "id", "--missing", "zero")
    for name in ("a", "b"):
        done = axiograd("attribute", f"{mine}:table", "--data", table, "--out", tmp_path / name, *options)
        assert done.code == 0, done.err
    assert len(pq.read_table(tmp_path / "a")["windows"][0]) == 4
    same = axiograd("compare", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "bars.png", "--json")
    assert (same.code, same.json["changed"], same.json["paired"]) == (0, False, True)
    assert (tmp_path / "bars.png").is_file()


def test_parquet_with_encoded_images_as_hugging_face_has_them(mine, photos, tmp_path):
    import pyarrow as pa

    files = sorted(photos.rglob("*.png"))
    images = [{"bytes": file.read_bytes(), "path": file.name} for file in files] + [{"bytes": b"nothing", "path": ""}]
    pq.write_table(
        pa.table({"image": images, "label": [0, 0, 1, 1, 2, 2, 2]}), tmp_path / "hub.parquet", row_group_size=3
    )
    for data, out in ((tmp_path / "hub.parquet", "parquet"), (photos, "files")):
        done = axiograd("attribute", f"{mine}:build", "--data", data, "--out", tmp_path / out, *HOW)
        assert done.code == 0, done.err
    a, b = (pq.read_table(tmp_path / out) for out in ("parquet", "files"))
    np.testing.assert_allclose(np.stack(a["windows"].to_pylist()[:6]), np.stack(b["windows"].to_pylist()), rtol=1e-5)
    assert "cannot identify image file" in a["error"][6].as_py()
    assert a["label"].to_pylist()[:6] == b["label"].to_pylist()


def test_a_file_of_numpy(mine, tmp_path):
    np.save(tmp_path / "rows.npy", torch.randn(5, 4).numpy())
    done = axiograd("attribute", f"{mine}:table", "--data", tmp_path / "rows.npy", "--out", tmp_path / "out", "--json")
    assert (done.code, done.json["rows"], done.json["errors"]) == (0, 5, 0)
    bad = io.BytesIO()
    np.save(bad, np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "objects.npy").write_bytes(bad.getvalue())
    refused = axiograd("attribute", f"{mine}:table", "--data", tmp_path / "objects.npy", "--out", tmp_path / "x")
    assert (refused.code, "cannot be read" in refused.err) == (3, True)


def test_compare_says_changed_by_its_exit_code(mine, tmp_path):
    x = torch.randn(120, 4).numpy()
    np.save(tmp_path / "a.npy", x[:60])
    np.save(tmp_path / "b.npy", x[60:] + np.array([3.0, 0, 0, 0], dtype=np.float32))
    np.save(tmp_path / "c.npy", x[60:])
    for name in "abc":
        assert (
            axiograd("attribute", f"{mine}:table", "--data", tmp_path / f"{name}.npy", "--out", tmp_path / name).code
            == 0
        )
    changed = axiograd("compare", tmp_path / "a", tmp_path / "b", "--permutations", 500)
    assert changed.code == 1
    assert changed.out.startswith("CHANGED")
    assert axiograd("compare", tmp_path / "a", tmp_path / "c", "--permutations", 500).code == 0
    assert axiograd("compare", tmp_path / "a", tmp_path / "none").code == 3
    shutil.copy(tmp_path / "a" / "part-000000.parquet", tmp_path / "one.parquet")
    assert axiograd("compare", tmp_path / "one.parquet", tmp_path / "a").code == 0


@pytest.mark.parametrize("given", [["window"], ["windows=big"], ["windows=0"], ["per-channel=3"]])
def test_summaries_that_cannot_be_read(given):
    with pytest.raises(ConfigurationError):
        read_summaries(given, [])
    with pytest.raises(ConfigurationError):
        read_summaries([], ["logo=1,2,x"])


@pytest.mark.parametrize("data", ["photos", "photos/cat/cat0.png", "hub.parquet", "rows.npy"])
def test_workers_in_another_folder_find_the_files(mine, photos, tmp_path, monkeypatch, data):
    """What leaves for a worker, read again in a folder of its own: paths as they were given lead nowhere there."""
    import pyarrow as pa

    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    pixels = torch.rand(3, 3, 16, 16).numpy()
    np.save("rows.npy", pixels)
    pq.write_table(pa.table({"image": [one.tolist() for one in pixels]}), "hub.parquet")
    made = axiograd("convert", f"{mine.name}:build", "--how", "strip", "--shape", "3,16,16", "-o", "lifted.safetensors")
    assert made.code == 0, made.err
    errors = []

    def elsewhere(attribute, source, out, **_):
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        errors.extend(attribute.rows(source.read(0, 1).inputs)["error"])
        raise ConfigurationError("enough.")

    monkeypatch.setattr("axiograd.scale.write_attributions", elsewhere)
    how = ("--size", "16", "--mean", "0.5", "--std", "0.5", "--weights", "lifted.safetensors", "--engine", "ray")
    axiograd("attribute", f"{mine.name}:build", "--data", data, "--out", "rows", *how)
    assert errors == [None]
