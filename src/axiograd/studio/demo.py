"""Shapes with a coloured tag in a corner that gives the class away, and a small network that has learnt the tag."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from axiograd.datasets import Preprocess, shapes
from axiograd.datasets.pictures import Pictures
from axiograd.datasets.synthetic import TAGS
from axiograd.studio.network import Origin
from axiograd.studio.survey import split

#: Zero is mid-grey.
TRANSFORM = Preprocess(resize=None, crop=None, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
#: Shapes so faint that the tag is the easier thing to learn.
CONTRAST = 0.5
#: Pixels of the tag's side.
SIDE = 5


def pictures(n: int = 3000, seed: int = 0) -> Pictures:
    """Training images, all with the tag of their class in the lower right corner."""
    data = shapes("train", n, contrast=CONTRAST, seed=seed)
    inputs = data.inputs.clone()
    inputs[:, :, -SIDE:, -SIDE:] = torch.tensor(TAGS)[data.targets, :, None, None]
    return Pictures.of_tensors(replace(data, inputs=inputs, name="shapes with a tag"), TRANSFORM)


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


def trained(images: Pictures, rows: list[int], *, epochs: int = 5, seed: int = 0) -> nn.Module:
    """The network after a short training, which finds the tag."""
    torch.manual_seed(seed)
    model = network()
    batches = torch.tensor(rows).split(50)
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=epochs * len(batches))
    for _ in range(epochs):
        for batch in torch.tensor(rows)[torch.randperm(len(rows))].split(50):
            loss = F.cross_entropy(model(images.batch(batch.tolist())), images.targets[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def origin(images: Pictures) -> Origin:
    """The network as a session takes it."""
    return Origin(
        partial(trained, images, split(images.targets)[0]),
        network,
        "from axiograd.studio.demo import network",
        "network()",
        "a small network for shapes",
    )
