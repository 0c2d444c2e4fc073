"""What an item of the paper is: the work to do, and the table and the figure that follow from its records."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from axiograd.errors import ConfigurationError
from axiograd.experiments.records import Records, markdown_table

#: Quick needs no download, real is the data in AXIOGRAD_DATA, full is the paper's ImageNet and its weights.
Scale = Literal["quick", "real", "full"]
Cell = str | float | int | None


@dataclass(frozen=True)
class Setting:
    """How an item is run."""

    scale: Scale = "real"
    seed: int = 0
    imagenet: Path | None = None
    weights: Path | None = None

    def full_scale(self) -> tuple[Path, Path]:
        """The folders of ImageNet and of the published weights."""
        if self.imagenet is None or self.weights is None:
            raise ConfigurationError("the paper's full scale needs --imagenet ROOT and --weights DIR.")
        return self.imagenet, self.weights


@dataclass(frozen=True)
class Work:
    """A piece that can be computed by itself; its key says what it is, its cost is relative to the others'."""

    key: Mapping[str, Any]
    compute: Callable[[], Mapping[str, Any]]
    cost: float = 1.0


#: Pieces that may depend on the records of the stages before.
Stage = Callable[[Records], Sequence[Work]]


@dataclass(frozen=True)
class Plan:
    """All the work of an item on some data. The pieces of a stage are independent, so that processes can share them."""

    data: str
    settings: Mapping[str, Any]
    stages: tuple[Stage, ...]

    @classmethod
    def of(cls, data: str, settings: Mapping[str, Any], work: Sequence[Work]) -> Plan:
        """Of pieces that are all independent of each other."""
        return cls(data, settings, (lambda _: work,))


@dataclass(frozen=True)
class Table:
    """Columns and rows, ours beside the paper's, and what is to be said of them.

    >>> print(Table(("method", "ours", "paper"), (("X-Gradient", 0.7661, 0.767),)).markdown())
    | method | ours | paper |
    |---|---|---|
    | X-Gradient | 0.7661 | 0.767 |
    """

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        """The table, and the note below it."""
        table = markdown_table(self.header, self.rows)
        return f"{table}\n\n{self.note}" if self.note else table

    def csv(self) -> str:
        """The table with commas; an empty cell is nothing."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.header, *self.rows])
        return text.getvalue()


@dataclass(frozen=True)
class Item:
    """A table or a figure of the paper."""

    name: str
    title: str
    plan: Callable[[Setting], Plan]
    table: Callable[[Records], Table]
    #: A matplotlib figure in the paper's layout.
    figure: Callable[[Records], Any] | None = None
    #: The same with pictures that are not ours to publish, where the data are at hand; written as SCALE.photos.png.
    private_figure: Callable[[Records, Setting], Any] | None = None
    scales: tuple[Scale, ...] = field(default=("quick", "real", "full"))
