"""A small training run that other processes do and tests interrupt."""

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from axiograd.attribution import InputXGradient
from axiograd.training import Recipe, checkpoint, fit
from axiograd.training.loss import AttributionLoss
from axiograd.training.schedules import LinearWarmup

#: imported once by the server that forks the children
PRELOAD = ["support.training_run", "support.training_ranks", "lightning.fabric", "torch.utils.tensorboard"]


class Augmented(torch.utils.data.Dataset):
    """Draws from all three global generators, as users' augmentations do."""

    def __init__(self, n=48):
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(n, 4, generator=generator)
        self.y = (self.x[:, 0] > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        numpy = torch.as_tensor(np.random.random(4), dtype=torch.float32)  # noqa: NPY002 - the global one is meant
        noise = torch.randn(4) + random.random() + numpy
        return self.x[index] + 0.1 * noise, self.y[index]


class Slow(nn.Module):
    """Takes its time, so that there are moments in which to be killed."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def forward(self, x):
        time.sleep(self.seconds)
        return x


def make_model(seconds=0.0):
    torch.manual_seed(3)
    return nn.Sequential(Slow(seconds), nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))


def make_loss():
    def prior(attributions):
        return attributions.square().mean()

    method = {"method": InputXGradient, "outputs": "random"}
    return AttributionLoss(nn.functional.cross_entropy, prior, weight=LinearWarmup(2.0, steps=10), **method)


def train(out, *, seconds=0.0, optimizer="sgd", epochs=4, num_workers=0, **settings):
    """Four epochs of six steps with everything on: augmentation, dropout, a scheduled prior, validation."""
    settings.setdefault("recipe", Recipe(optimizer=optimizer, lr=0.05, epochs=epochs, batch_size=8, schedule="cosine"))
    data = Augmented()
    return fit(
        make_model(seconds),
        data,
        loss=make_loss(),
        validation=(data.x, data.y),
        out=out,
        seed=11,
        num_workers=num_workers,
        log_steps=2,
        checkpoint_steps=4,
        progress=False,
        accelerator="cpu",
        **settings,
    )


def train_in_child(out, seconds, started):
    torch.set_num_threads(1)
    Path(started).touch()
    train(out, seconds=seconds)


def die_while_writing(out, file_number, share):
    """Train, and be killed when a share of a checkpoint file's bytes is written."""
    torch.set_num_threads(1)
    written = 0

    def write_and_die(path: Path, data: bytes) -> None:
        nonlocal written
        written += 1
        with path.open("wb") as file:
            file.write(data if written < file_number else data[: int(share * len(data))])
        if written == file_number:
            os.kill(os.getpid(), signal.SIGKILL)

    checkpoint.write_bytes = write_and_die
    train(out)
