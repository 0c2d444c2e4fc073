"""Attributions of a data set, in a process of its own that a test kills."""

import os
import time
from pathlib import Path

import torch
from torch import nn

import axiograd


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.inner = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))

    def forward(self, x):
        time.sleep(float(os.environ.get("SLEEP", "0")))  # how long it takes is no part of what the run is
        return self.inner(x)


def samples(changed=None):
    x = torch.randn(80, 5, generator=torch.Generator().manual_seed(0))
    if changed is not None:
        x[changed] += 1
    return x, torch.arange(80) % 3


def attribute(folder, data=None):
    references = torch.randn(9, 5, generator=torch.Generator().manual_seed(3))
    method = axiograd.ExpectedGradients(Slow(), references, 3, generator=torch.Generator().manual_seed(4))
    data = torch.utils.data.TensorDataset(*samples()) if data is None else data
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    return axiograd.attribute_dataset(method, loader, out=folder, shard_bytes=100, progress=False)


def in_child(folder, seconds):
    torch.set_num_threads(1)
    os.environ["SLEEP"] = str(seconds)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        attribute(folder)
