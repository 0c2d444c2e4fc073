"""Running statistics over rows: means and spreads per class that workers compute apart and merge."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axiograd.errors import InputError
from axiograd.scale.folder import parts_of
from axiograd.scale.sources import opened

#: Beside the map of windows and the numbers that every row has, these have a mean: parts of a whole.
_SHARES = ("share_", "energy_", "area_")


@dataclass
class Moments:
    """Number, mean and sum of squared deviations of rows; two of them merge to those of all rows (Chan et al.).

    >>> a, b = Moments(), Moments()
    >>> a.update(np.array([[1.0], [2.0]])); b.update(np.array([[6.0]]))
    >>> a.merge(b); a.n, a.mean, a.variance
    (3, array([3.]), array([7.]))
    """

    n: int = 0
    mean: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    squares: NDArray[Any] = field(default_factory=lambda: np.zeros(0))

    def update(self, rows: NDArray[Any]) -> None:
        """Add rows ``[n, …]``."""
        if len(rows):
            rows = np.asarray(rows, dtype=np.float64)
            mean = rows.mean(0)
            self.merge(Moments(len(rows), mean, ((rows - mean) ** 2).sum(0)))

    def merge(self, other: Moments) -> None:
        """Add what another one has seen."""
        if not other.n:
            return
        if not self.n:
            self.n, self.mean, self.squares = other.n, other.mean.copy(), other.squares.copy()
            return
        if self.mean.shape != other.mean.shape:
            raise InputError(f"rows of shape {other.mean.shape} beside {self.mean.shape}: they have no common mean.")
        n = self.n + other.n
        apart = other.mean - self.mean
        self.mean = self.mean + apart * (other.n / n)
        self.squares = self.squares + other.squares + apart**2 * (self.n * other.n / n)
        self.n = n

    @property
    def variance(self) -> NDArray[Any]:
        """The unbiased one; NaN for fewer than two rows."""
        return self.squares / (self.n - 1) if self.n > 1 else np.full_like(self.mean, math.nan)

    @property
    def standard_error(self) -> NDArray[Any]:
        """Of the mean."""
        return np.sqrt(self.variance / max(self.n, 1))


@dataclass
class Statistics:
    """Per class that was attributed: the mean map of windows, Gini, shares in regions, and how well rows add up.

    >>> Statistics().rows
    0
    """

    rows: int = 0
    errors: int = 0
    #: class → column → moments; `windows` is a map, everything else a number.
    classes: dict[int, dict[str, Moments]] = field(default_factory=dict)
    #: Σ (total − difference)² and Σ difference², for the relative completeness error.
    gap: float = 0.0
    scale: float = 0.0
    correct: int = 0
    labelled: int = 0
    #: False once two rows had different grids of windows: images of several sizes have no mean map.
    mapped: bool = True

    def update(self, table: Any) -> None:
        """Add the rows of a pyarrow table that `Attribute` made."""
        good = table.filter(table["error"].is_null())
        found = Statistics(table.num_rows, table.num_rows - good.num_rows)
        if good.num_rows:
            found._fill(good)
        self.merge(found)

    def _fill(self, good: Any) -> None:
        target = good["target"].to_numpy()
        columns = {"gini": good["gini"].to_numpy(), "score": good["score"].to_numpy()}
        columns |= {name: good[name].to_numpy() for name in good.column_names if name.startswith(_SHARES)}
        columns["total"] = good["total"].to_numpy()
        if "windows" in good.column_names:
            try:
                columns["windows"] = maps_of(good)
            except InputError:
                self.mapped = False
        for one in np.unique(target):
            held = self.classes.setdefault(int(one), {})
            for name, values in columns.items():
                own = values[target == one]
                # Rows without a mask have no share.
                own = own[np.isfinite(own)] if name.startswith(_SHARES) else own
                if len(own):
                    held.setdefault(name, Moments()).update(own)
        difference = good["difference"].to_numpy()
        self.gap += float(((columns["total"] - difference) ** 2).sum())
        self.scale += float((difference**2).sum())
        label = good["label"].to_numpy(zero_copy_only=False).astype(np.float64)
        known = np.isfinite(label)
        self.labelled += int(known.sum())
        self.correct += int((label[known] == good["prediction"].to_numpy()[known]).sum())

    def merge(self, other: Statistics) -> None:
        """Add what another worker has seen."""
        self.rows += other.rows
        self.errors += other.errors
        self.gap += other.gap
        self.scale += other.scale
        self.correct += other.correct
        self.labelled += other.labelled
        held_by_both = (*self.classes.values(), *other.classes.values())
        shapes = {held["windows"].mean.shape for held in held_by_both if "windows" in held}
        if len(shapes) > 1 or not (self.mapped and other.mapped):
            self.mapped = False
            for columns in self.classes.values():
                columns.pop("windows", None)
        for one, columns in other.classes.items():
            held = self.classes.setdefault(one, {})
            for name, moments in columns.items():
                if self.mapped or name != "windows":
                    held.setdefault(name, Moments()).merge(moments)

    def over(self, name: str) -> Moments:
        """A column's moments over all classes."""
        whole = Moments()
        for one in sorted(self.classes):
            if name in self.classes[one]:
                whole.merge(self.classes[one][name])
        return whole

    @property
    def completeness(self) -> float:
        """Root mean square of Σ A − (F(x) − F(0)), relative to that of F(x) − F(0); NaN without rows."""
        return math.sqrt(self.gap / self.scale) if self.scale else math.nan

    @property
    def accuracy(self) -> float | None:
        """Share of rows whose prediction is their label; None without labels."""
        return self.correct / self.labelled if self.labelled else None

    def to_dict(self) -> dict[str, Any]:
        """For JSON: numbers per class, without maps."""
        names = sorted({name for held in self.classes.values() for name in held} - {"windows"})

        def told(held: dict[str, Moments]) -> dict[str, Any]:
            numbers = {
                name: {"mean": float(held[name].mean), "se": _number(float(held[name].standard_error))}
                for name in names
                if name in held and held[name].n
            }
            return {"rows": held["gini"].n} | numbers

        every = {name: self.over(name) for name in names}
        return {
            "rows": self.rows,
            "errors": self.errors,
            "accuracy": self.accuracy,
            "completeness_error": _number(self.completeness),
            "all": told(every) if self.classes else {},
            "classes": {str(one): told(self.classes[one]) for one in sorted(self.classes)},
        }

    @classmethod
    def of(cls, path: str | Path) -> Statistics:
        """Of a folder or file that `axiograd attribute` wrote: part after part, merged."""
        return cls.merged(_of_part(part) for part in parts_of(Path(path)))

    @classmethod
    def merged(cls, parts: Iterable[Statistics]) -> Statistics:
        """One for all of them."""
        whole = cls()
        for part in parts:
            whole.merge(part)
        return whole


def _number(value: Any) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else float(value)


def _of_part(path: Path) -> Statistics:
    found = Statistics()
    found.update(opened(path).read())
    return found


def maps_of(table: Any) -> NDArray[Any]:
    """The windows of rows without errors, ``[rows, down, across]``; InputError where grids differ."""
    column = table["windows"].combine_chunks()
    grids = np.asarray(table["grid"].combine_chunks().flatten()).reshape(-1, 2)
    if len(different := np.unique(grids, axis=0)) > 1:
        told = ", ".join(f"{down} × {across}" for down, across in different[:4])
        raise InputError(f"rows with different grids of windows ({told}) have no common map: crop images to one size.")
    return np.asarray(column.flatten(), dtype=np.float64).reshape(len(grids), *grids[0])
