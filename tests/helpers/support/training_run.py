"""A small training run that other processes do and tests interrupt."""

import contextlib
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
from axiograd.training import Recipe, fit
from axiograd.training.loss import AttributionLoss
from axiograd.training.schedules import LinearWarmup


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

    def forward(self, x):
        time.sleep(float(os.environ.get("SLEEP", "0")))  # how long it takes is no part of what the run is
        return x


def make_model():
    torch.manual_seed(3)
    return nn.Sequential(Slow(), nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))


def make_loss():
    def prior(attributions):
        return attributions.square().mean()

    method = {"method": InputXGradient, "outputs": "random"}
    return AttributionLoss(nn.functional.cross_entropy, prior, weight=LinearWarmup(2.0, steps=10), **method)


def train(out, *, optimizer="sgd", epochs=4, num_workers=0, **settings):
    """Four epochs of six steps with everything on: augmentation, dropout, a scheduled prior, validation."""
    settings.setdefault("checkpoint_steps", 4)
    settings.setdefault("recipe", Recipe(optimizer=optimizer, lr=0.05, epochs=epochs, batch_size=8, schedule="cosine"))
    data = Augmented()
    return fit(
        make_model(),
        data,
        loss=make_loss(),
        validation=(data.x, data.y),
        out=out,
        seed=11,
        num_workers=num_workers,
        log_steps=2,
        progress=False,
        accelerator="cpu",
        **settings,
    )


def train_in_child(out, seconds, started, said=os.devnull):
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in the background
    os.environ["SLEEP"] = str(seconds)
    Path(started).touch()
    with Path(said).open("w") as file, contextlib.redirect_stderr(file):
        try:
            train(out)
        except KeyboardInterrupt:
            sys.exit(128 + signal.SIGINT)


def die_while_writing(out, file_number, share):
    """Train, and be killed when a share of a checkpoint file's bytes is written."""
    torch.set_num_threads(1)
    written, write = 0, Path.write_bytes

    def write_and_die(path: Path, data: bytes) -> None:
        nonlocal written
        if not path.parent.name.startswith("tmp-step-"):
            write(path, data)
            return
        written += 1
        with path.open("wb") as file:
            file.write(data if written < file_number else data[: int(share * len(data))])
        if written == file_number:
            os.kill(os.getpid(), signal.SIGKILL)

    Path.write_bytes = write_and_die
    train(out)
