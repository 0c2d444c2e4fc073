"""Shapes with a coloured tag in a corner that gives the class away, and a small network that has learnt the tag."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from axiograd.datasets import Preprocess, shapes
from axiograd.datasets.pictures import Pictures
from axiograd.studio.network import Origin
from axiograd.studio.split import split
from axiograd.studio.survey import Between

#: Zero is mid-grey.
TRANSFORM = Preprocess(resize=None, crop=None, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
#: Shapes so faint that the tag is the easier thing to learn.
CONTRAST = 0.3


def pictures(n: int = 3000, seed: int = 0) -> Pictures:
    """Training images, all with the tag of their class."""
    return Pictures.of_tensors(shapes("train", n, shortcut="class", contrast=CONTRAST, seed=seed), TRANSFORM)


def network() -> nn.Sequential:
    """A small convolutional network with biases, as everybody builds it; not an X-DNN."""
    return nn.Sequential(
        nn.PixelUnshuffle(2),
        nn.Conv2d(12, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 48, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48 * 16, 4),
    )


def trained(images: Pictures, rows: tuple[int, ...], between: Between, *, epochs: int = 5, seed: int = 0) -> nn.Module:
    """The network after a short training, which finds the tag."""
    torch.manual_seed(seed)
    model = network()
    size = 50
    total = epochs * -(-len(rows) // size)
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=total)
    for epoch in range(epochs):
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(epoch)).tolist()
        for start in range(0, len(rows), size):
            between(epoch * -(-len(rows) // size) + start // size, total)
            chosen = [rows[i] for i in order[start : start + size]]
            loss = F.cross_entropy(model(images.batch(chosen)), images.targets[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def origin(images: Pictures) -> Origin:
    """The network as a session takes it."""
    rows = split(images.targets.tolist()).train
    return Origin(
        partial(trained, images, rows),
        network,
        "from axiograd.studio.demo import network",
        "network()",
        "a small network for shapes",
    )
