"""How unusual a row is among all rows of two tables: what a mean over everything does not show.

A mark on one image in twenty hardly moves the mean of any window. But each of these images has a window that few others
have, so the marked images are among the most unusual ones, and they are all in one of the tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The most unusual rows that are counted, as parts of all rows.
TOP = (0.05, 0.02, 0.01, 0.005)
NAMES = ("unusualness", *(f"among the {100 * part:g} % most unusual" for part in TOP))


def unusualness(values: NDArray[Any]) -> NDArray[Any]:
    """log maxⱼ |xᵢⱼ − median xⱼ| / spread of xⱼ, per row; it does not know which table a row is from.

    >>> rows = np.random.default_rng(0).normal(size=(100, 3))
    >>> rows[7, 1] = 20.0
    >>> int(unusualness(rows).argmax())
    7
    """
    away = np.abs(values - np.median(values, axis=0))
    spread = np.sqrt((away**2).mean(0))
    relative = np.divide(away, spread, out=np.zeros_like(away, dtype=np.float64), where=spread > 0)
    return np.asarray(np.log(relative.max(1, initial=0.0) + 1e-6))


def columns(values: NDArray[Any]) -> NDArray[Any]:
    """The rows' unusualness, and whether they are among the most unusual 5, 2, 1 and ½ %: ``[rows, 5]``."""
    score = unusualness(values)
    place = np.empty(len(score))
    place[np.argsort(-score, kind="stable")] = np.arange(len(score))
    return np.stack([score, *((place < part * len(score)).astype(np.float64) for part in TOP)], axis=1)
