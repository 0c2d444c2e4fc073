import json

import pytest
import torch

from axiograd.errors import StorageError
from axiograd.training import checkpoint

TENSORS = {"model": {"w": torch.randn(3, 2)[:, :1], "n": torch.tensor(4)}, "optimizer": {}}


def test_round_trip_and_layout(tmp_path):
    path = checkpoint.write(tmp_path, 12, TENSORS, {"best": None, "loss": 0.1})
    assert {file.name for file in path.iterdir()} == {"model.safetensors", "optimizer.safetensors", "state.json"}
    found = checkpoint.latest(tmp_path)
    assert (found.step, found.state["loss"], found.tensors["optimizer"]) == (12, 0.1, {})
    assert all(torch.equal(found.tensors["model"][name], tensor) for name, tensor in TENSORS["model"].items())


def test_every_truncation_and_every_flipped_byte_is_noticed(tmp_path):
    path = checkpoint.write(tmp_path, 1, TENSORS, {"loss": 0.1})
    for name in ("model.safetensors", "state.json"):
        whole = (path / name).read_bytes()
        for at in range(0, len(whole), 3):
            (path / name).write_bytes(whole[:at])
            with pytest.raises(StorageError):
                checkpoint.read(path)
            # spaces of the JSON layout do not matter, everything else does
            if not whole[at : at + 1].isspace():
                flipped = bytearray(whole)
                flipped[at] ^= 2
                (path / name).write_bytes(flipped)
                with pytest.raises(StorageError):
                    checkpoint.read(path)
        (path / name).write_bytes(whole)
    assert checkpoint.read(path).step == 1


def test_half_written_ones_are_not_found(tmp_path):
    checkpoint.write(tmp_path, 1, TENSORS, {})
    (tmp_path / "tmp-step-00000002").mkdir()
    (tmp_path / "step-of-mine").mkdir()
    assert checkpoint.latest(tmp_path).step == 1
    checkpoint.prune(tmp_path)
    assert not (tmp_path / "tmp-step-00000002").exists()
    assert (tmp_path / "step-of-mine").exists()


def test_the_newest_and_the_best_are_kept(tmp_path):
    for step in range(1, 7):
        checkpoint.write(tmp_path, step, TENSORS, {})
        checkpoint.prune(tmp_path, also=[2, None])
    assert [path.name for path in checkpoint.steps(tmp_path)] == ["step-00000002", "step-00000005", "step-00000006"]


def test_writing_again_replaces(tmp_path):
    checkpoint.write(tmp_path, 3, TENSORS, {"loss": 1})
    checkpoint.write(tmp_path, 3, TENSORS, {"loss": 2})
    assert checkpoint.latest(tmp_path).state["loss"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000003"]


def test_all_damaged_means_from_the_start(tmp_path):
    for _ in range(2):
        path = checkpoint.write(tmp_path, 3, TENSORS, {})
        (path / "state.json").write_text("{}")
        with pytest.warns(UserWarning, match="state.json is missing or damaged"):
            assert checkpoint.latest(tmp_path) is None
    assert {path.name for path in tmp_path.iterdir()} == {"damaged-step-00000003", "damaged-step-00000003-1"}


def test_another_format_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT", 99)
    path = checkpoint.write(tmp_path, 3, TENSORS, {})
    monkeypatch.undo()
    with pytest.raises(StorageError, match="format 99"):
        checkpoint.read(path)
    assert json.loads((path / "state.json").read_text())["body"]["format"] == 99
