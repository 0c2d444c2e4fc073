"""One test for many columns: permutations of the rows, and the largest statistic of all columns in each of them.

A column's adjusted p is the share of permutations in which the largest |t| of any column is at least its own (Westfall
and Young's max-T). Whatever the columns' dependence, the chance that any of them is called changed while the rows come
from one distribution is at most α. Blocks of columns may be put into families: α is then shared out evenly among
these (Bonferroni), so that a few columns are not held to the threshold of hundreds of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axiograd.errors import InputError

#: Permutations that are looked at together; bounds memory.
_TOGETHER = 128
_LEAST = 2


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
    n = len(after)
    if not _LEAST <= after.sum() <= n - _LEAST:
        raise InputError(f"{n - int(after.sum())} rows against {int(after.sum())}: both need at least two.")
    generator = np.random.default_rng(seed)

    def labels(count: int) -> NDArray[Any]:
        return generator.permuted(np.tile(after.astype(np.float32), (count, 1)), axis=1)

    centred = [_Columns.of(block, np.std) for block in blocks]
    return _tested(blocks, centred, after[None].astype(np.float32), labels, permutations, _welch)


def paired(blocks: Sequence[RowBlock], n: int, permutations: int, seed: int) -> Tested:
    """Whether differences (after − before) of the same rows have the mean zero: Student's t, signs flipped."""
    if n < _LEAST:
        raise InputError(f"{n} rows: a comparison needs at least two.")
    generator = np.random.default_rng(seed)

    def labels(count: int) -> NDArray[Any]:
        return generator.integers(0, 2, (count, n), dtype=np.int8).astype(np.float32) * 2 - 1

    # A difference that is the same in every row is the clearest of all: the scale is that of zero, not of the mean.
    scaled = [_Columns.of(block, _root_mean_square) for block in blocks]
    return _tested(blocks, scaled, np.ones((1, n), dtype=np.float32), labels, permutations, _student)


def _root_mean_square(values: NDArray[Any], axis: int) -> NDArray[Any]:
    return np.asarray(np.sqrt((values**2).mean(axis)))


def _tested(
    blocks: Sequence[RowBlock],
    centred: Sequence[_Columns],
    own: NDArray[Any],
    labels: Any,
    permutations: int,
    statistic: Any,
) -> Tested:
    observed = [statistic(columns, own[:, columns.rows])[0] for columns in centred]
    families = {block.family for block in blocks}
    largest: dict[str, list[NDArray[Any]]] = {family: [] for family in families}
    for first in range(0, permutations, _TOGETHER):
        drawn = labels(min(_TOGETHER, permutations - first))
        each = [np.abs(statistic(columns, drawn[:, columns.rows])).max(1, initial=0.0) for columns in centred]
        for family, found in largest.items():
            own_blocks = [one for one, block in zip(each, blocks, strict=True) if block.family == family]
            found.append(np.max(own_blocks, axis=0))
    p = []
    for t, block in zip(observed, blocks, strict=True):
        null = np.sort(np.concatenate(largest[block.family]))
        # A small tolerance for sums in another order.
        above = len(null) - np.searchsorted(null, np.abs(t) * (1 - 1e-5), side="left")
        p.append(np.minimum(len(families) * (1 + above) / (1 + permutations), 1.0))
    return Tested(observed, p)


@dataclass(frozen=True)
class _Columns:
    """A block's columns, scaled so that single precision is enough, and their squares."""

    values: NDArray[Any]
    squares: NDArray[Any]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, block: RowBlock, scale: Any) -> _Columns:
        values = np.asarray(block.values, dtype=np.float64)
        spread = scale(values, axis=0)
        # What has no spread, but for rounding, cannot have changed.
        varies = spread > 1e-9 * np.abs(values).max(0, initial=0.0)
        scaled = np.where(varies, values / np.where(varies, spread, 1.0), 0.0).astype(np.float32)
        return cls(scaled, scaled**2, block.rows)


def _welch(columns: _Columns, after: NDArray[Any]) -> NDArray[Any]:
    """t per label vector and column; 0 where a group has fewer than two rows."""
    n_after = after.sum(1, keepdims=True)
    n_before = after.shape[1] - n_after
    sums, squares = after @ columns.values, after @ columns.squares
    rest, rest_squares = columns.values.sum(0) - sums, columns.squares.sum(0) - squares
    possible = (n_after >= _LEAST) & (n_before >= _LEAST)
    a, b = np.maximum(n_after, _LEAST), np.maximum(n_before, _LEAST)
    spread = _over(squares, sums, a) + _over(rest_squares, rest, b)
    t = (sums / a - rest / b) / np.sqrt(spread + 1e-12)
    return np.asarray(np.where(possible, t, 0.0))


def _over(squares: NDArray[Any], sums: NDArray[Any], n: NDArray[Any]) -> NDArray[Any]:
    """Squared standard error of a mean."""
    return np.asarray(np.maximum(squares - sums**2 / n, 0.0) / (n - 1) / n)


def _student(columns: _Columns, signs: NDArray[Any]) -> NDArray[Any]:
    n = signs.shape[1]
    if n < _LEAST:
        return np.zeros((len(signs), columns.values.shape[1]))
    mean = signs @ columns.values / n
    spread = np.maximum(columns.squares.sum(0) - n * mean**2, 0.0) / (n - 1) / n
    return np.asarray(mean / np.sqrt(spread + 1e-12))
