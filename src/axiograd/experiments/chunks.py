"""Images in chunks: pieces of work that are independent of each other, and numbers per image in their records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

from axiograd.experiments import image_networks
from axiograd.experiments.image_networks import Family
from axiograd.experiments.item import Setting, Work
from axiograd.experiments.records import RecordedPiece

#: Digits that are kept of a measured number.
DIGITS = 7


@dataclass(frozen=True)
class Chunk:
    """Some images of an order, by their places in it."""

    start: int
    stop: int
    indices: tuple[int, ...]

    @property
    def key(self) -> list[int]:
        """What identifies it in records."""
        return [self.start, self.stop]


def chunks(indices: Sequence[int], size: int) -> Iterator[Chunk]:
    """The images in chunks of a size.

    >>> [chunk.key for chunk in chunks([5, 3, 8], 2)]
    [[0, 2], [2, 3]]
    """
    for start in range(0, len(indices), size):
        stop = min(start + size, len(indices))
        yield Chunk(start, stop, tuple(indices[start:stop]))


#: Images in a piece, and images in all where not every one is measured.
PieceSize = tuple[int, int | None]


def of_families(
    families: Sequence[Family], setting: Setting, size: PieceSize, fewer: Mapping[str, PieceSize] | None = None
) -> dict[Family, list[Chunk]]:
    """The images of each network in chunks; `fewer` is for networks that take minutes for each image."""
    found = {}
    for family in families:
        of_piece, n = (fewer or {}).get(family.key, size)
        indices = image_networks.order(image_networks.images(family, setting), setting.seed, n, family)
        found[family] = list(chunks(indices, of_piece))
    return found


def in_turn(split: Mapping[Family, Sequence[Chunk]]) -> list[tuple[Family, Chunk]]:
    """A chunk of every network before the next one, so that what is there is comparable at any time."""
    rows = zip_longest(*([(family, chunk) for chunk in found] for family, found in split.items()))
    return [pair for row in rows for pair in row if pair is not None]


def work_on(
    pairs: Iterable[tuple[Family, Chunk]], setting: Setting, measure: Callable[..., Mapping[str, Any]]
) -> list[Work]:
    """A piece for each form of a network on each of its chunks."""
    return [
        Work(
            {"network": family.key, "form": form, "images": chunk.key},
            partial(measure, family, form, chunk, setting),
            len(chunk.indices),
        )
        for family, chunk in pairs
        for form in family.forms
    ]


def rounded(values: Sequence[float]) -> list[float]:
    """Numbers with as many digits as float32 has.

    >>> rounded([1 / 3, 2.0])
    [0.3333333, 2.0]
    """
    return [float(f"{value:.{DIGITS}g}") for value in values]


@dataclass(frozen=True)
class Average:
    """How many numbers, their mean, and the sum of their squared distances to it.

    >>> Average.of([1.0, 3.0]) + Average.of([5.0])
    Average(n=3, mean=3.0, squares=8.0)
    """

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Average:
        mean = math.fsum(values) / len(values) if values else 0.0
        return cls(len(values), mean, math.fsum((value - mean) ** 2 for value in values))

    def __add__(self, other: Average) -> Average:
        n = self.n + other.n
        if n == 0:
            return self
        apart = other.mean - self.mean
        mean = self.mean + apart * other.n / n
        return Average(n, mean, self.squares + other.squares + apart**2 * self.n * other.n / n)

    @property
    def standard_error(self) -> float | None:
        """Of the mean; one number alone has none."""
        return math.sqrt(self.squares / (self.n - 1) / self.n) if self.n > 1 else None

    def text(self, digits: int) -> str:
        """Mean ± standard error.

        >>> Average.of([1.0, 3.0]).text(2)
        '2.00 ± 1.00'
        """
        mean = f"{self.mean:.{digits}f}"
        return mean if self.standard_error is None else f"{mean} ± {self.standard_error:.{digits}f}"


def stored(values: Mapping[str, Sequence[float]], *, per_image: bool) -> dict[str, Any]:
    """For records: a number per image, or, where images are too many for that, the moments of a chunk."""
    if per_image:
        return {name: rounded(found) for name, found in values.items()}
    return {name: vars(Average.of(found)) for name, found in values.items()}


def average(pieces: Sequence[RecordedPiece], name: str) -> Average:
    """Over all images of some pieces."""
    total = Average()
    for piece in pieces:
        found = piece.values[name]
        total += Average(**found) if isinstance(found, Mapping) else Average.of(found)
    return total
