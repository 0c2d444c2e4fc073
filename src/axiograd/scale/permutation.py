"""One test for many columns: permutations of the rows, and the largest statistic of all columns in each of them.

A column's adjusted p is the share of permutations in which the largest |t| of any column is at least its own (Westfall
and Young's max-T). Whatever the columns' dependence, the chance that any of them is called changed while the rows come
from one distribution is at most α. Blocks of columns may be put into families: α is then shared out evenly among
these (Bonferroni), so that a few columns are not held to the threshold of hundreds of others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Permutations that are looked at together; bounds memory.
_TOGETHER = 128
#: The most unusual rows that are counted, as parts of all rows.
_TOP = (0.05, 0.02, 0.01, 0.005)
UNUSUAL = ("unusualness", *(f"among the {100 * part:g} % most unusual" for part in _TOP))


@dataclass(frozen=True)
class RowBlock:
    """Columns that some of the rows have: their values ``[rows, columns]``, which rows those are, and their family."""

    values: NDArray[Any]
    rows: NDArray[np.int64]
    family: str = ""


@dataclass(frozen=True)
class Tested:
    """Per block, t and the adjusted p of every column."""

    t: list[NDArray[Any]]
    p: list[NDArray[Any]]


def two_samples(blocks: Sequence[RowBlock], after: NDArray[np.bool_], permutations: int, seed: int) -> Tested:
    """Whether rows `after` differ from the others: Welch's t, labels permuted.

    >>> values = np.concatenate([np.zeros((50, 1)), np.ones((50, 1))]) + np.random.default_rng(0).normal(size=(100, 1))
    >>> found = two_samples([RowBlock(values, np.arange(100))], np.arange(100) >= 50, 199, 0)
    >>> float(found.p[0][0])
    0.005
    """
    generator, own = np.random.default_rng(seed), after.astype(np.float32)

    def draw(count: int) -> NDArray[Any]:
        return generator.permuted(np.tile(own, (count, 1)), axis=1)

    return _max_t(
        [_scaled(block.values, block.values.std(0)) for block in blocks], blocks, _welch, own, draw, permutations
    )


def paired(blocks: Sequence[RowBlock], n: int, permutations: int, seed: int) -> Tested:
    """Whether differences (after − before) of the same rows have the mean zero: Student's t, signs flipped."""
    generator = np.random.default_rng(seed)

    def draw(count: int) -> NDArray[Any]:
        return generator.integers(0, 2, (count, n), dtype=np.int8).astype(np.float32) * 2 - 1

    # A difference that is the same in every row is the clearest of all: the scale is that of zero, not of the mean.
    scaled = [_scaled(block.values, np.sqrt((block.values**2).mean(0))) for block in blocks]
    return _max_t(scaled, blocks, _student, np.ones(n, dtype=np.float32), draw, permutations)


def _max_t(
    scaled: Sequence[NDArray[Any]],
    blocks: Sequence[RowBlock],
    statistic: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]],
    own: NDArray[Any],
    draw: Callable[[int], NDArray[Any]],
    permutations: int,
) -> Tested:
    """t with the rows' own labels, and how often the largest |t| of its family is as large with drawn ones."""
    largest: dict[str, list[NDArray[Any]]] = {block.family: [] for block in blocks}
    for first in range(0, permutations, _TOGETHER):
        drawn = draw(min(_TOGETHER, permutations - first))
        each = {family: np.zeros(len(drawn)) for family in largest}
        for x, block in zip(scaled, blocks, strict=True):
            t = np.abs(statistic(x, drawn[:, block.rows])).max(1, initial=0.0)
            each[block.family] = np.maximum(each[block.family], t)
        for family, most in each.items():
            largest[family].append(most)
    found = Tested([], [])
    for x, block in zip(scaled, blocks, strict=True):
        t = statistic(x, own[None, block.rows])[0]
        null = np.concatenate(largest[block.family])
        # A small tolerance for sums in another order.
        above = (null[:, None] >= np.abs(t) * (1 - 1e-5)).sum(0)
        found.t.append(t)
        found.p.append(np.minimum(len(largest) * (1 + above) / (1 + permutations), 1.0))
    return found


def _scaled(values: NDArray[Any], spread: NDArray[Any]) -> NDArray[Any]:
    """Columns of about one size, so that single precision is enough; what has no spread, but for rounding, is 0."""
    varies = spread > 1e-9 * np.abs(values).max(0, initial=0.0)
    return np.where(varies, values / np.where(varies, spread, 1.0), 0.0).astype(np.float32)


def _welch(x: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
    """t per label vector and column; 0 where a group has fewer than two rows."""
    n_after = after.sum(1, keepdims=True)
    n_before = after.shape[1] - n_after
    a, b = np.maximum(n_after, 2), np.maximum(n_before, 2)
    sums, squares = after @ x, after @ x**2
    rest, rest_squares = x.sum(0) - sums, (x**2).sum(0) - squares
    error = _squared_error(squares, sums, a) + _squared_error(rest_squares, rest, b)
    return np.asarray(np.where(np.minimum(n_after, n_before) < 2, 0.0, (sums / a - rest / b) / np.sqrt(error + 1e-12)))  # noqa: PLR2004


def _student(x: NDArray[Any], signs: NDArray[Any]) -> NDArray[Any]:
    n = max(len(x), 2)
    sums = signs @ x
    return np.asarray(sums / n / np.sqrt(_squared_error((x**2).sum(0), sums, n) + 1e-12))


def _squared_error(squares: NDArray[Any], sums: NDArray[Any], n: Any) -> NDArray[Any]:
    """Of a mean, from sums of squares and sums over n rows."""
    return np.asarray(np.maximum(squares - sums**2 / n, 0.0) / (n - 1) / n)


def unusual_columns(values: NDArray[Any]) -> NDArray[Any]:
    """log maxⱼ |xᵢⱼ − median xⱼ| / spread of xⱼ, and whether a row is among the largest 5, 2, 1 and ½ % in that.

    A mark on one image in twenty hardly moves the mean of any window. But each of these images has a window that few
    others have, so the marked images are among the most unusual of both tables' rows, and they are all in one of them.

    >>> rows = np.random.default_rng(0).normal(size=(100, 3))
    >>> rows[7, 1] = 20.0
    >>> unusual_columns(rows)[7, 1:]
    array([1., 1., 1., 1.])
    """
    away = np.abs(values - np.median(values, axis=0))
    spread = np.sqrt((away**2).mean(0))
    relative = np.divide(away, spread, out=np.zeros_like(away, dtype=np.float64), where=spread > 0)
    score = np.log(relative.max(1, initial=0.0) + 1e-6)
    place = np.argsort(np.argsort(-score, kind="stable"))
    return np.stack([score, *((place < part * len(score)).astype(np.float64) for part in _TOP)], axis=1)
