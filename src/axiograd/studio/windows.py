"""Windows that hold much of an attribution map, for their size or for their place, and the images that share one.

A shortcut that many images have is where their maps are heaviest. One that few images have is not, because a network
that has seen it rarely still looks at the object most; but it is where the maps of other images hold next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axiograd.studio.survey import GRID, WINDOWS

#: Fewer images are an accident.
SMALLEST = 5
#: Groups of each kind that are kept.
MOST = 24
_Value = Callable[[NDArray[np.float64], int], NDArray[np.float64]]


@dataclass(frozen=True)
class Places:
    """One window per image: [n, 3] as top, left and side in cells; its share of the mass, and the mean one there."""

    windows: NDArray[np.int64]
    shares: NDArray[np.float64]
    usual: NDArray[np.float64]

    def concentration(self, members: NDArray[np.int64]) -> float:
        """Their share of the mass over what it would be: evenly spread, or as in other images, if that is less.

        At most sixteen times the even one, so that places where nobody has anything do not decide.
        """
        even = float(np.median(self.windows[members, 2]) / GRID) ** 2
        usual = max(float(self.usual[members].mean()), even / 16)
        return float(self.shares[members].mean()) / min(even, usual)


def heaviest(maps: NDArray[np.float32]) -> Places:
    """The window that is heaviest for its size.

    Sizes are compared by share / side, between share (always the larger one) and density (always the smaller one).
    """
    return _best(maps, lambda held, side: held / side)


def unusual(maps: NDArray[np.float32]) -> Places:
    """The window that holds more than other images have there, in standard deviations of what they have.

    A quarter of an even share is added to the deviation, and only windows with more than an even share count: places
    where nobody has anything do not decide.
    """

    def value(held: NDArray[np.float64], side: int) -> NDArray[np.float64]:
        even = (side / GRID) ** 2
        return np.where(held > even, (held - held.mean(0)) / (held.std(0) + even / 4), -np.inf)

    return _best(maps, value)


def _best(maps: NDArray[np.float32], value: _Value) -> Places:
    count = np.arange(len(maps))
    windows = np.zeros((len(maps), 3), dtype=np.int64)
    best, shares, usual = np.full(len(maps), -np.inf), np.zeros(len(maps)), np.zeros(len(maps))
    for side, held in _sums(maps):
        values = value(held, side)
        place = values.argmax(1)
        better = values[count, place] > best
        across = GRID - side + 1
        found = np.stack([place // across, place % across, np.full(len(maps), side)], 1)
        windows[better], best[better] = found[better], values[count, place][better]
        shares[better], usual[better] = held[count, place][better], held.mean(0)[place][better]
    return Places(windows, shares, usual)


def _sums(maps: NDArray[np.float32]) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Each side, with the mass of every window of it, row by row: [n, windows]."""
    sums = np.pad(maps.astype(np.float64).cumsum(1).cumsum(2), ((0, 0), (1, 0), (1, 0)))
    for side in WINDOWS:
        held = sums[:, side:, side:] - sums[:, :-side, side:] - sums[:, side:, :-side] + sums[:, :-side, :-side]
        yield side, held.reshape(len(maps), -1)


def groups(maps: NDArray[np.float32]) -> list[tuple[Places, NDArray[np.int64]]]:
    """Images that share a window: the largest groups by the heaviest ones, the most concentrated by unusual ones.

    Where both say the same of most of their images, the first stands for both.
    """
    heavy, rare = heaviest(maps), unusual(maps)
    found = [(heavy, members) for members in _near(heavy)[:MOST]]
    others = sorted(_near(rare), key=rare.concentration, reverse=True)
    found += [(rare, one) for one in others[:MOST] if not any(_same(rare, one, heavy, many) for _, many in found)]
    return found


def _near(places: Places) -> list[NDArray[np.int64]]:
    """Images whose windows have one size and are at most a cell apart from the most common one, largest first."""
    windows, left = places.windows, places.shares > 0
    found: list[NDArray[np.int64]] = []
    while left.any():
        candidates, counts = np.unique(windows[left], axis=0, return_counts=True)
        centre = candidates[counts.argmax()]
        near = (np.abs(windows[:, :2] - centre[:2]).max(1) <= 1) & (windows[:, 2] == centre[2])
        members = np.flatnonzero(left & near)
        left &= ~near
        if len(members) >= SMALLEST:
            found.append(members)
    return sorted(found, key=len, reverse=True)


def _same(rare: Places, one: NDArray[np.int64], heavy: Places, many: NDArray[np.int64]) -> bool:
    """Are most of one group's images in the other, with windows of a size that are at most a cell apart?"""
    both = np.intersect1d(one, many)
    apart = np.abs(rare.windows[both] - heavy.windows[both]).max(1)
    return 2 * int((apart <= 1).sum()) > len(one)
