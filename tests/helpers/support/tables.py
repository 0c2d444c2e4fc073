"""Small tables to train on."""

import torch

from axiograd.datasets import TensorData


def two_clouds(n=64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.arange(n) % 2
    return TensorData(torch.randn(n, 2, generator=generator) + 4 * targets[:, None] - 2, targets, name="two clouds")
