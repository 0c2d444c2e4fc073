"""Which images train and which judge: a share of every class is held out, and never trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Split:
    """Rows to train with, rows to judge by, and classes too small to have both."""

    train: tuple[int, ...]
    held_out: tuple[int, ...]
    too_small: tuple[int, ...] = ()


def split(targets: Sequence[int], *, share: float = 0.2, seed: int = 0) -> Split:
    """A share of each class is held out, at least one image; a class of one image has none to spare.

    >>> split([0, 0, 0, 0, 0, 1])
    Split(train=(0, 1, 3, 4, 5), held_out=(2,), too_small=(1,))
    """
    random = np.random.default_rng(seed)
    found = np.asarray(targets)
    held: list[int] = []
    small: list[int] = []
    for label in np.unique(found):
        rows = random.permutation(np.flatnonzero(found == label))
        if len(rows) < 2:  # noqa: PLR2004
            small.append(int(label))
            continue
        held += rows[: max(1, round(share * len(rows)))].tolist()
    chosen = set(held)
    return Split(tuple(i for i in range(len(found)) if i not in chosen), tuple(sorted(held)), tuple(small))


def sample(rows: Sequence[int], most: int, seed: int = 0) -> list[int]:
    """At most so many of the rows, in their order."""
    if len(rows) <= most:
        return list(rows)
    chosen = np.random.default_rng(seed).choice(len(rows), most, replace=False)
    return [rows[i] for i in np.sort(chosen)]
