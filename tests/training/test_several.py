"""Two processes train as one does: the same global batches, the same gradients, the same weights."""

import socket

import pytest
import torch

from axiograd._io import load_tensors
from support.children import processes
from support.training_ranks import train, train_as_torchrun_does


def test_two_processes_equal_one(tmp_path):
    alone = train(tmp_path / "one")
    assert alone.steps == 8
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [processes().Process(target=train_as_torchrun_does, args=(r, port, tmp_path)) for r in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(timeout=120)
        process.kill()
    for rank in range(2):
        steps, static = (tmp_path / f"rank-{rank}.txt").read_text().splitlines()
        assert steps == "4 8"
        assert "static_graph=True" in static
    expected = load_tensors(tmp_path / "one" / "model.safetensors")
    last = torch.load(tmp_path / "one" / "last.ckpt", weights_only=True)
    for name in ("two", "resumed"):
        for key, weight in load_tensors(tmp_path / name / "model.safetensors").items():
            torch.testing.assert_close(weight, expected[key], rtol=0, atol=1e-10)
        found = torch.load(tmp_path / name / "last.ckpt", weights_only=True)
        for key, value in last["state_dict"].items():
            torch.testing.assert_close(found["state_dict"][key], value, rtol=0, atol=1e-10)
        for row, whole in zip(found["axiograd"]["history"], alone.history, strict=True):
            assert row == pytest.approx(whole, rel=1e-6)
