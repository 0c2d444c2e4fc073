"""A small data set and a model, and runs that store their attributions."""

from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

import axiograd
from axiograd import attribute_dataset

N, BATCH = 22, 4


def samples():
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(N, 5, generator=generator), torch.arange(N) % 3)


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))


def run(method, loader, out, **options):
    """Two batches of five float32 features, three outputs and two integers fill a shard."""
    return attribute_dataset(method, loader, out=out, **{"shard_bytes": 2 * BATCH * 48, "progress": False} | options)


def shards(folder):
    return sorted(Path(folder).glob("shard-*.safetensors"))


class Counting(axiograd.InputXGradient):
    """Counts the batches that it attributes, and stops at one if told to."""

    def __init__(self, model, stop_at=None):
        super().__init__(model)
        self._batches, self._stop_at = 0, stop_at

    def _compute(self, call):
        if self._batches == self._stop_at:
            raise KeyboardInterrupt
        self._batches += 1
        return super()._compute(call)
