"""`axiograd train` under torchrun and under Ray Train: two processes give the weights of one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from axiograd._io import load_tensors

CONFIG = """
out = "{out}"
[model]
name = "xmlp"
options = {{ in_channels = 2, hidden = [8], num_classes = 2 }}
[data]
name = "support.tables:two_clouds"
train = {{ n = 64 }}
validation = {{ n = 32, seed = 1 }}
[loss]
prior = "Gini"
weight = 0.01
[recipe]
optimizer = "adam"
lr = 0.05
epochs = 2
batch_size = 16
[run]
metric = "accuracy"
accelerator = "cpu"
precision = "64-true"
"""
HELPERS = Path(__file__).parents[1] / "helpers"


@pytest.fixture
def environment():
    paths = os.pathsep.join([str(HELPERS), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def run(folder, environment, *words):
    (folder / "run.toml").write_text(CONFIG.format(out=folder / "out"))
    command = [sys.executable, *words, "axiograd", "train", str(folder / "run.toml")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return load_tensors(folder / "out/model.safetensors")


@pytest.mark.long
def test_under_torchrun(tmp_path, environment):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m")
    one, two = run(tmp_path / "one", environment, "-m"), run(tmp_path / "two", environment, *torchrun)
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-9, atol=1e-12)


RAY = """
import sys

import ray
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer


def train(config):
    from axiograd.training.config import load_config, train_from

    train_from(load_config(config["file"]), progress=False)


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error")
    scaling = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1})
    TorchTrainer(train, train_loop_config={"file": sys.argv[-1]}, scaling_config=scaling).fit()
"""


@pytest.mark.long
def test_under_ray_train(tmp_path, environment):
    """The worker function of the how-to, on two of Ray's workers."""
    pytest.importorskip("ray")
    page = (Path(__file__).parents[2] / "docs/how-to/train-with-a-prior.md").read_text()
    assert RAY.split("def train")[1].split("if __name__", maxsplit=1)[0].strip() in page
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one = run(tmp_path / "one", environment, "-m")
    (tmp_path / "on_ray.py").write_text(RAY)
    two = run(tmp_path / "two", environment, str(tmp_path / "on_ray.py"))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-9, atol=1e-12)
