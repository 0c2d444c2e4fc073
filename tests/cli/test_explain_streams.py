"""`explain` forgets a sample once it is drawn and stored, and leaves nothing old in its folder."""

import gc
import weakref

import pytest
import torch
from safetensors.torch import load_file

from axiograd.cli import picturing
from axiograd.cli.attributing import AttributedSample
from axiograd.cli.streamed import StreamedTensors
from axiograd.errors import InputError
from support.command import axiograd

SMALL = ("--size", "16", "--mean", "0.5", "--std", "0.5", "-m", "gradient")


def test_samples_are_forgotten_and_pages_are_turned(mine, photos, tmp_path, monkeypatch):
    monkeypatch.setattr(picturing, "PAGE", 2)
    alive, most = weakref.WeakSet(), []
    made = AttributedSample.__init__

    def counted(self, *args, **kwargs):
        made(self, *args, **kwargs)
        alive.add(self)
        gc.collect()
        most.append(len(alive))

    monkeypatch.setattr(AttributedSample, "__init__", counted)
    monkeypatch.setattr(AttributedSample, "__hash__", object.__hash__)
    out = tmp_path / "o"
    done = axiograd("explain", f"{mine}:build", photos, *SMALL, "-o", out, "--batch-size", "1", "--json")
    assert done.code == 0, done.err
    assert max(most) <= 4  # those of a page, and the one being made
    assert [page.rsplit("/", 1)[1] for page in done.json["files"]["pages"]] == [
        "report.html",
        "report-2.html",
        "report-3.html",
    ]
    assert "cat/cat0.png" in (out / "report.html").read_text()
    assert "owl/owl1.png" in (out / "report-3.html").read_text()
    assert load_file(out / "attributions.safetensors")["gradient"].shape == (6, 3, 16, 16)
    # a smaller run leaves none of the larger one's pictures; files of yours stay
    (out / "mine.png").write_bytes(b"mine")
    done = axiograd("explain", f"{mine}:build", photos, *SMALL, "-o", out, "--limit", "1")
    assert done.code == 0, done.err
    assert sorted(path.name for path in out.iterdir()) == [
        "000-cat0.png",
        "attributions.safetensors",
        "mine.png",
        "report.html",
    ]


def test_no_proof_where_none_is_needed(mine, photos, tmp_path, monkeypatch):
    from axiograd.cli import attributing

    def certify(*_args):
        raise AssertionError

    monkeypatch.setattr(attributing, "certify", certify)
    options = (*SMALL, "-o", tmp_path / "o", "--no-figures", "--no-report", "--json")
    done = axiograd("explain", f"{mine}:build", photos, *options)
    assert done.code == 0, done.err
    assert done.json["certified"] is None


def test_streamed_tensors_of_different_shapes_and_types(tmp_path):
    with StreamedTensors() as stream:
        for i in range(3):
            stream.add(str(i), {"flag": torch.tensor(i > 0), "x": torch.full((i + 1, 2), float(i)).double()})
        stream.write(tmp_path / "a.safetensors", {})
    found = load_file(tmp_path / "a.safetensors")
    assert found["flag"].tolist() == [False, True, True]
    assert torch.equal(found["x/2"], torch.full((3, 2), 2.0).double())
    with StreamedTensors() as stream:
        stream.add("0", {"x": torch.zeros(1)})
        with pytest.raises(InputError, match="after samples of"):
            stream.add("1", {"x": torch.zeros(1).double()})
