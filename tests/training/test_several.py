"""Two processes train as one does: the same global batches, the same gradients, the same weights."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from axiograd.training import checkpoint
from support import training_ranks


def test_two_processes_equal_one(tmp_path):
    one, two, resumed = (tmp_path / name for name in ("one", "two", "resumed"))
    alone = training_ranks.train(one, accelerator="cpu")
    middle = checkpoint.folder(one, 5)
    assert alone.steps == 8
    assert middle.exists()
    shutil.copytree(middle, checkpoint.folder(resumed, 5))
    tests, source = Path(__file__).parents[1], Path(__file__).parents[2] / "src"
    path = os.pathsep.join([str(tests), str(source), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, training_ranks.__file__, two, resumed],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-2:] == [f"{two} 0 8", f"{resumed} 5 8"]
    expected = checkpoint.latest(one)
    for out in (two, resumed):
        found = checkpoint.latest(out)
        for name in ("model", "optimizer"):
            for key, tensor in expected.tensors[name].items():
                torch.testing.assert_close(found.tensors[name][key], tensor, rtol=0, atol=1e-10)
        scores = [[row[term] for term in ("total", "validation")] for row in found.state["history"]]
        assert scores == [pytest.approx([row["total"], row["validation"]]) for row in expected.state["history"]]
