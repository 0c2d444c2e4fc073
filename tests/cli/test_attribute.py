"""`axiograd attribute` and `axiograd compare`, from files to exit codes."""

import pytest
import torch

import axiograd as library
from axiograd.cli.attribute import read_summaries
from axiograd.errors import ConfigurationError
from support.command import axiograd

pq = pytest.importorskip("pyarrow.parquet")
HOW = ("--preprocess", "size=16,mean=0.5,std=0.5", "-m", "input-x-gradient")


def test_a_folder_of_photos(mine, photos, tmp_path):
    (photos / "owl" / "torn.png").write_bytes((photos / "owl" / "owl0.png").read_bytes()[:200])
    done = axiograd("attribute", f"{mine}:build", "--data", photos, "--out", tmp_path / "rows", *HOW, "--json")
    assert (done.code, done.json["rows"], done.json["errors"]) == (0, 7, 1)
    table = pq.read_table(tmp_path / "rows")
    assert table["label"].to_pylist() == [0, 0, 1, 1, 2, 2, 2]
    errors = zip(table["name"].to_pylist(), table["error"].to_pylist(), strict=True)
    assert [name for name, error in errors if error] == ["owl/torn.png"]
    other = axiograd("attribute", f"{mine}:build", "--data", photos, "--out", tmp_path / "rows", *HOW, "--target", "1")
    assert (other.code, "target (there: predicted, here: 1)" in other.err) == (3, True)


def test_parquet_with_encoded_images_as_hugging_face_has_them(mine, photos, tmp_path):
    import pyarrow as pa

    files = sorted(photos.rglob("*.png"))
    images = [{"bytes": file.read_bytes(), "path": file.name} for file in files]
    pq.write_table(pa.table({"image": images, "label": [0, 0, 1, 1, 2, 2]}), tmp_path / "hub.parquet")
    done = axiograd("attribute", f"{mine}:build", "--data", tmp_path / "hub.parquet", "-o", tmp_path / "rows", *HOW)
    assert done.code == 0, done.err
    total = pq.read_table(tmp_path / "rows")["total"].to_pylist()
    # The same file can be explained.
    done = axiograd("explain", f"{mine}:build", tmp_path / "hub.parquet", "-o", tmp_path / "o", *HOW, "--json")
    assert done.code == 0, done.err
    sums = [row["methods"]["input-x-gradient"]["sum"] for row in done.json["samples"]]
    torch.testing.assert_close(torch.tensor(sums), torch.tensor(total), rtol=1e-4, atol=1e-5)


def test_two_tables_are_compared(table, tmp_path):
    spec = f"{table.with_suffix('.py')}:table"
    for name in ("a", "b"):
        done = axiograd("attribute", spec, "--data", table, "--out", tmp_path / name)
        assert done.code == 0, done.err
    assert len(pq.read_table(tmp_path / "a")["windows"][0]) == len(library.load(spec).schema.encoded_names)
    same = axiograd("compare", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "bars.png", "--json")
    assert same.code == 0, same.err
    assert (same.json["changed"], same.json["paired"]) == (False, True)
    assert (tmp_path / "bars.png").is_file()


def test_mistakes_are_named():
    for names, regions in ((["windos"], []), (["windows=x"], []), ([], ["logo=a,b,c,d"])):
        with pytest.raises(ConfigurationError, match="--"):
            read_summaries(names, regions)
