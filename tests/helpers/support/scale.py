"""A small source and network for tables of attributions, also in processes that a test kills."""

import os
import time

import torch
from torch import nn

from axiograd.datasets import DamagedImageError
from axiograd.scale import Attribute, Listed, Regions, Windows, write_attributions


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.inner = nn.Sequential(
            nn.Conv2d(2, 4, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 100, 3, bias=False)
        )

    def forward(self, x):
        time.sleep(float(os.environ.get("SLEEP", "0")))  # how long it takes is no part of what the run is
        return self.inner(x)


class Images:
    def __init__(self, n, seed, broken):
        self.x = torch.randn(n, 2, 12, 12, generator=torch.Generator().manual_seed(seed))
        self.broken = broken

    def __call__(self, place):
        if place in self.broken:
            raise DamagedImageError(f"image {place} cannot be decoded.")
        return self.x[place]


def source(n=40, seed=0, broken=()):
    return Listed("made up", [f"image {i}" for i in range(n)], Images(n, seed, broken), [i % 3 for i in range(n)])


def make():
    return Attribute(Slow(), summary=(Windows(2), Regions({"corner": (0, 0, 4, 4)})))


def write(folder, samples=None, **options):
    given = {"batch_size": 4, "part_rows": 8, "progress": False} | options
    return write_attributions(make(), source() if samples is None else samples, folder, **given)


def in_child(folder, seconds):
    torch.set_num_threads(1)
    os.environ["SLEEP"] = str(seconds)
    write(folder)
