"""A small training run that other processes do and tests interrupt."""

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from axiograd.attribution import InputXGradient
from axiograd.training import AttributionLoss, Recipe, fit


class Augmented(torch.utils.data.Dataset):
    """Draws from all three global generators, as users' augmentations do, and counts what is read."""

    def __init__(self, n=48):
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(n, 4, generator=generator)
        self.y = (self.x[:, 0] > 0).long()
        self.reads = 0

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        self.reads += 1
        numpy = torch.as_tensor(np.random.random(4), dtype=torch.float32)  # noqa: NPY002 - the global one is meant
        noise = torch.randn(4) + random.random() + numpy
        return self.x[index] + 0.1 * noise, self.y[index]


class Slow(nn.Module):
    """Takes its time, so that there are moments in which to be killed."""

    def forward(self, x):
        time.sleep(float(os.environ.get("SLEEP", "0")))
        return x


def make_model():
    torch.manual_seed(3)
    return nn.Sequential(Slow(), nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))


def make_loss():
    def prior(attributions):
        return attributions.square().mean()

    def warmed_up(step):
        return 2 * min(step / 10, 1)

    return AttributionLoss(nn.functional.cross_entropy, prior, warmed_up, InputXGradient, outputs="random")


def train(out, *, epochs=4, num_workers=0, **settings):
    """Epochs of six steps with everything on: augmentation, dropout, a scheduled prior, validation."""
    data = Augmented()
    recipe = Recipe(optimizer="adam", lr=0.05, epochs=epochs, batch_size=8, schedule="cosine", weight_decay=0.0)
    settings = {"recipe": recipe, "seed": 11, "validation": (data.x, data.y), **settings}
    return fit(
        make_model(),
        data,
        make_loss(),
        out=out,
        num_workers=num_workers,
        progress=False,
        accelerator="cpu",
        **settings,
    )


def train_in_child(out, seconds):
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in the background
    os.environ["SLEEP"] = str(seconds)
    try:
        train(out)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def die_while_writing(out, number):
    """Train, and be killed in the middle of the bytes of a checkpoint."""
    torch.set_num_threads(1)
    written, save = 0, torch.save

    def save_and_die(checkpoint, path):
        nonlocal written
        save(checkpoint, path)
        written += 1
        if written == number:
            data = Path(path).read_bytes()
            Path(path).write_bytes(data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)

    torch.save = save_and_die
    train(out)
