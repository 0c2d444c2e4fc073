"""Two processes train as one does: the same global batches, the same gradients, the same weights."""

import shutil
import socket

import pytest
import torch

from axiograd.training import checkpoint
from support.children import processes
from support.training_ranks import train, train_as_torchrun_does


@pytest.mark.parametrize(("sharded", "parts"), [(False, 1), (False, 2), (True, 1), (True, 2)])
def test_two_processes_equal_one(tmp_path, sharded, parts):
    one, two, resumed = (tmp_path / name for name in ("one", "two", "resumed"))
    alone = train(one, parts=parts, prior=not sharded, accelerator="cpu")  # sharded models train without a prior
    middle = checkpoint.folder(one, 5)
    assert alone.steps == 8
    assert middle.exists()
    shutil.copytree(middle, checkpoint.folder(resumed, 5))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = processes()
    ranks = [
        context.Process(target=train_as_torchrun_does, args=(r, port, (two, resumed), sharded, parts)) for r in range(2)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(timeout=120)
        process.kill()
    for out, said in ((two, "2 0 8"), (resumed, "2 5 8")):
        assert [(out / f"rank-{rank}.txt").read_text() for rank in range(2)] == [said, said]
    expected = checkpoint.latest(one)
    for out in (two, resumed):
        found = checkpoint.latest(out)
        for name in ("model", "optimizer"):
            for key, tensor in expected.tensors[name].items():
                torch.testing.assert_close(found.tensors[name][key], tensor, rtol=0, atol=1e-10)
        scores = [[row[term] for term in ("total", "validation")] for row in found.state["history"]]
        assert scores == [pytest.approx([row["total"], row["validation"]]) for row in expected.state["history"]]
