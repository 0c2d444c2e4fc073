"""Random numbers that are a function of where we are, so that a resumed run draws what an unbroken one draws.

Instead of carrying generator states along, every draw starts from a seed derived from the run's seed and its
place: the order of an epoch from (seed, epoch), the augmentation of a sample from (seed, epoch, index), a training
step from (seed, step, rank). So the seed and the position in a checkpoint are the whole state of all generators.
"""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from axiograd._state import draws_noticed


def derive(*place: int | str) -> int:
    """A 63-bit seed that depends on every part of the place, and on nothing else.

    >>> derive(0, "order", 3) == derive(0, "order", 3), derive(0, "order", 3) == derive(0, "order", 4)
    (True, False)
    """
    digest = hashlib.blake2b(repr(place).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def generator(*place: int | str) -> torch.Generator:
    """A generator of its own, seeded by the place."""
    return torch.Generator().manual_seed(derive(*place))


def seed_everything(*place: int | str) -> None:
    """Seed the global generators of Python, NumPy and torch by the place."""
    seed = derive(*place)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - users' augmentations draw from the global generator
    # torch.manual_seed asks every backend each time and costs a hundred times as much
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


@contextmanager
def kept_rng() -> Iterator[None]:
    """Give the caller's global generators back as they were."""
    with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))), draws_noticed():
        yield
