"""Two tables of attributions: which windows, regions and classes changed, by a test with a known error rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axiograd._extras import optional
from axiograd.errors import ConfigurationError, InputError
from axiograd.scale.parts import provenance_of
from axiograd.scale.permutation import UNUSUAL, RowBlock, paired as paired_test, two_samples, unusual_columns
from axiograd.scale.sources import open_parquet, reading_parquet
from axiograd.scale.summaries import Windows

#: Rows of a class on either side from which it is looked at by itself, and the cells of its map, down and across.
_OF_CLASS, _CELLS = 20, 4
#: Most classes whose frequency is compared: the most frequent ones.
_CLASSES = 200
#: Relative differences that the same numbers may have, computed twice and stored in single precision.
_ROUNDING = 1e-5
_SHOWN = 10
#: What two tables must have in common, and what one compares them for.
_SAME, _NAMED = ("method", "baseline", "target", "summaries"), ("preprocessing", "data", "model", "versions")


@dataclass(frozen=True)
class Change:
    """One number of the table: its means, t, and p adjusted for all numbers that were looked at."""

    #: window (share of the magnitude), signed window, region, class (how often it is predicted), attribution of a
    #: class (in sixteen cells), sparsity, or rows (how unusual they are in one of their windows).
    kind: str
    name: str
    before: float
    after: float
    t: float
    p: float

    def __str__(self) -> str:
        p = f"p = {self.p:.2g}"
        return f"{self.kind} {self.name}: {self.before:.4g} → {self.after:.4g} (t = {self.t:+.1f}, {p})"


@dataclass(frozen=True, eq=False)
class Comparison:
    """What changed from one table to another; `changed` is wrong with a chance of at most `alpha` if nothing did."""

    #: Everything that was tested, the clearest change first.
    changes: tuple[Change, ...]
    alpha: float
    rows: tuple[int, int]
    paired: bool
    permutations: int
    #: Mean share of the magnitude in each window, before and after, and its adjusted p; None without windows.
    maps: tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None = None
    #: How the tables' provenance differs (model, data, versions), and rows that were left out.
    different: tuple[str, ...] = ()

    @property
    def p(self) -> float:
        """The smallest adjusted p: that of the whole comparison."""
        return min((change.p for change in self.changes), default=1.0)

    @property
    def changed(self) -> bool:
        """Whether anything is called changed."""
        return self.p <= self.alpha

    @property
    def significant(self) -> tuple[Change, ...]:
        """What is called changed, the clearest first."""
        return tuple(change for change in self.changes if change.p <= self.alpha)

    def __str__(self) -> str:
        how = "the same rows, signs flipped" if self.paired else "labels permuted"
        verdict = (
            f"{'CHANGED' if self.changed else 'no change'}: {len(self.significant)} of {len(self.changes)} numbers"
        )
        test = f"{how}, {self.permutations:,} permutations, false alarms at most {self.alpha:.2g}"
        lines = [
            f"{verdict}, p = {self.p:.2g} for all of them together",
            f"{self.rows[0]:,} rows against {self.rows[1]:,}; {test}",
            *(f"  differs: {one}" for one in self.different),
            *(f"  {change}" for change in self.significant[:_SHOWN]),
        ]
        if len(self.significant) > _SHOWN:
            lines.append(f"  … and {len(self.significant) - _SHOWN} more")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "changed": self.changed,
            "p": self.p,
            "alpha": self.alpha,
            "rows": list(self.rows),
            "paired": self.paired,
            "permutations": self.permutations,
            "tested": len(self.changes),
            "different": list(self.different),
            "changes": [vars(change) for change in self.significant],
        }


def compare(
    before: str | Path,
    after: str | Path,
    *,
    alpha: float = 0.05,
    permutations: int = 2000,
    rows: int = 10_000,
    paired: bool | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare two tables that `axiograd attribute` wrote: two models on the same rows, or two weeks of one model.

    Windows are shares of their row's magnitude, so that a model with larger logits is not a changed one. With `paired`,
    by default where both tables have the same names, rows are compared with themselves, and those with an error in
    either table are left out of both. Of tables with more than `rows` rows as many are drawn, in pairs the same ones.
    All numbers are tested together (`axiograd.scale.permutation`).
    """
    if not 0 < alpha < 1 or permutations < round(2 / alpha):
        raise ConfigurationError(
            f"alpha={alpha}, permutations={permutations}: a p of alpha needs at least 2/alpha permutations."
        )
    tables = [_Table(Path(path)) for path in (before, after)]
    different = _differences(*tables)
    generator = np.random.default_rng(seed)
    places, together, remarks = _choose_rows(*tables, paired=paired, most=rows, generator=generator)
    for table, some in zip(tables, places, strict=True):
        table.read(some)
    n = len(places[0]), len(places[1])
    columns = _columns(*tables, together=together)
    drawn = int(generator.integers(2**31))
    if together:
        found = paired_test([one.difference() for one in columns], n[0], permutations, drawn)
    else:
        found = two_samples([one.stacked(n[0]) for one in columns], np.arange(sum(n)) >= n[0], permutations, drawn)
    changes = [
        Change(one.kind, name, *map(float, numbers))
        for one, t, p in zip(columns, found.t, found.p, strict=True)
        for name, *numbers in zip(one.names, *(values.mean(0) for values in one.values), t, p, strict=True)
    ]
    changes.sort(key=lambda change: (change.p, -abs(change.t)))
    maps = None
    if tables[0].maps is not None:
        grid = tables[0].maps.shape[1:]
        before_map, after_map = (values.mean(0).reshape(grid) for values in columns[0].values)
        maps = before_map, after_map, found.p[0].reshape(grid)
    return Comparison(tuple(changes), alpha, n, together, permutations, maps, (*different, *remarks))


# Tables


class _Table:
    """A table: what it says about itself, the names of its rows, which of them have no error, and what some hold."""

    def __init__(self, path: Path) -> None:
        self.path, self.data = path, open_parquet(path)
        self.provenance = provenance_of(path, self.data)
        columns = [name for name in ("name", "error") if name in self.data.schema.names]
        with reading_parquet(path):
            read = self.data.to_table(columns=columns).combine_chunks()
        self.good = read["error"].is_null().to_numpy()
        names = read["name"].combine_chunks() if "name" in columns else None
        #: None where rows cannot be told apart.
        self.names = names if names is not None and len(names.unique()) == len(names) else None

    def read(self, places: NDArray[np.int64]) -> None:
        """Take some rows: `rows`, a table of pandas, and `maps` ``[rows, down, across]``, None without windows."""
        wanted = {"target", "prediction", "gini", "shape", "windows", "grid"}
        columns = [name for name in self.data.schema.names if name in wanted or name.startswith("share_")]
        with reading_parquet(self.path):
            table = self.data.take(places, columns=columns)
        numbers = [name for name in columns if name not in {"shape", "windows", "grid"}]
        self.rows = table.select(numbers).to_pandas()
        self.maps = _maps(table) if "windows" in columns else None
        self.shape = table["shape"][0].as_py()

    def window_names(self) -> list[str]:
        """Windows by the pixels that they cover, or by the feature's name."""
        height, width = self.shape[-2:] if len(self.shape) > 2 else (1, self.shape[-1])  # noqa: PLR2004
        size = Windows(self.provenance["summaries"]["Windows"]["size"]).size_of(height, width)
        if height == 1 and size == 1:
            return list(self.provenance.get("features") or map(str, range(width)))
        if height == 1:
            return [f"{x} to {min(x + size, width) - 1}" for x in range(0, width, size)]
        return [
            f"x {x}–{min(x + size, width)}, y {y}–{min(y + size, height)}"
            for y in range(0, height, size)
            for x in range(0, width, size)
        ]


def _maps(table: Any) -> NDArray[Any]:
    """The windows, ``[rows, down, across]``."""
    grids = np.asarray(table["grid"].combine_chunks().flatten()).reshape(-1, 2)
    if len(several := np.unique(grids, axis=0)) > 1:
        listed = ", ".join(f"{down} × {across}" for down, across in several[:4])
        raise InputError(
            f"rows with different grids of windows ({listed}) have no common map: crop images to one size."
        )
    windows = table["windows"].combine_chunks().flatten()
    return np.asarray(windows, dtype=np.float64).reshape(len(grids), *grids[0])


def _differences(a: _Table, b: _Table) -> list[str]:
    """Tables of different methods cannot be compared; other differences are what one compares for, and are named."""
    for key in _SAME:
        there, here = a.provenance.get(key), b.provenance.get(key)
        if there != here:
            raise ConfigurationError(
                f"{a.path} and {b.path} differ in {key} ({there} and {here}): make both with the same one."
            )
    found = [(key, a.provenance.get(key), b.provenance.get(key)) for key in _NAMED]
    named = [f"{key}: {there} → {here}" for key, there, here in found if there != here]
    for table in (a, b):
        n, whole = len(table.good), table.provenance.get("rows")
        if table.path.is_dir() and whole is not None and n < whole:
            named.append(f"{table.path} has {n:,} of its {whole:,} rows: the run has not ended")
    return named


def _choose_rows(
    a: _Table, b: _Table, *, paired: bool | None, most: int, generator: np.random.Generator
) -> tuple[list[NDArray[np.int64]], bool, list[str]]:
    """The rows of either table that are compared, whether in pairs, and what has to be said about that."""
    remarks: list[str] = []
    if a.names is None or b.names is None:
        if paired:
            unnamed = a.path if a.names is None else b.path
            raise InputError(f"{unnamed} has no column `name` without repetitions: its rows cannot be paired.")
        paired = False
    else:
        of_b = optional("pyarrow.compute", "scale", "Parquet").index_in(a.names, value_set=b.names)
        of_a, of_b = np.flatnonzero(of_b.is_valid()), of_b.drop_null().to_numpy()
        same = len(of_a) == len(a.names) == len(b.names)
        if paired is None and not same and len(of_a):
            remarks.append(f"{len(of_a):,} rows have the same name in both tables; paired=True compares only these")
        paired = same if paired is None else paired
    if not paired:
        places = [generator.permutation(np.flatnonzero(table.good))[:most] for table in (a, b)]
        if min(map(len, places)) < 2:  # noqa: PLR2004  # a variance needs two
            raise InputError(f"{len(places[0])} rows against {len(places[1])} without errors: both need at least two.")
        return [np.sort(some) for some in places], False, remarks
    good = np.flatnonzero(a.good[of_a] & b.good[of_b])
    if len(good) < 2:  # noqa: PLR2004
        raise InputError(
            f"{len(good)} rows have the same name in both tables, and no error: they cannot be compared in pairs."
        )
    if len(good) < len(of_a):
        remarks.append(f"{len(of_a) - len(good):,} rows with an error in one of the tables are left out of both")
    drawn = np.sort(generator.permutation(good)[:most])
    return [of_a[drawn], of_b[drawn]], True, remarks


# Numbers that are tested


@dataclass(frozen=True)
class _Columns:
    """Columns of both tables, for all rows or for those of a class: values, and which rows of either table they are."""

    kind: str
    names: list[str]
    values: Sequence[NDArray[Any]]
    rows: Sequence[NDArray[Any]]

    @property
    def family(self) -> str:
        """Few columns that would drown in the others' threshold have one of their own."""
        return self.kind if self.kind == "rows" else ""

    def difference(self) -> RowBlock:
        before, after = self.values
        away = after - before
        rounding = _ROUNDING * np.maximum(np.abs(after), np.abs(before))
        return RowBlock(np.where(np.abs(away) > rounding, away, 0.0), self.rows[0], self.family)

    def stacked(self, first: int) -> RowBlock:
        rows = np.concatenate([self.rows[0], self.rows[1] + first])
        return RowBlock(np.concatenate(self.values), rows, self.family)


def _columns(a: _Table, b: _Table, *, together: bool) -> list[_Columns]:
    """Windows first, then regions and sparsity, predicted classes, and the maps of classes."""
    every = np.arange(len(a.rows)), np.arange(len(b.rows))
    columns: list[_Columns] = []
    shares: list[NDArray[Any]] = []
    if a.maps is not None and b.maps is not None:
        if a.maps.shape[1:] != b.maps.shape[1:]:
            raise InputError(f"grids of {a.maps.shape[1:]} and {b.maps.shape[1:]} windows: make both of one size.")
        shares = [_shares(rows) for rows in (a.maps, b.maps)]
        flat = [one.reshape(len(one), -1) for one in shares]
        # Its magnitude says whether a place is looked at; the signed share, whether it supports or opposes the answer.
        names = a.window_names()
        columns.append(_Columns("window", names, [np.abs(one) for one in flat], every))
        columns.append(_Columns("signed window", names, flat, every))
        unusual = unusual_columns(np.abs(np.concatenate(flat)))
        columns.append(_Columns("rows", list(UNUSUAL), np.split(unusual, [len(a.rows)]), every))
    for name in a.rows.columns.drop(["target", "prediction"]):
        kind, called = ("sparsity", name) if name == "gini" else ("region", name.removeprefix("share_"))
        of_a, of_b = (np.flatnonzero(table.rows[name].notna()) for table in (a, b))  # not all have a mask
        if together:
            of_a = of_b = np.intersect1d(of_a, of_b)
        if min(len(of_a), len(of_b)) >= min(_OF_CLASS, len(a.rows), len(b.rows)):
            values = [table.rows[[name]].to_numpy(float)[of] for table, of in ((a, of_a), (b, of_b))]
            columns.append(_Columns(kind, [called], values, (of_a, of_b)))
    found, counts = np.unique(np.concatenate([a.rows["prediction"], b.rows["prediction"]]), return_counts=True)
    frequent = sorted(found[np.argsort(-counts, kind="stable")[:_CLASSES]].tolist())
    predicted = [(table.rows[["prediction"]].to_numpy() == frequent).astype(np.float64) for table in (a, b)]
    columns.append(_Columns("class", [str(one) for one in frequent], predicted, every))
    coarse = [_coarse(np.abs(one)) for one in shares]
    for one in frequent if coarse else ():
        # In pairs, the class is that of the first table: a row is compared with itself.
        of_a = np.flatnonzero(a.rows["target"] == one)
        of_b = of_a if together else np.flatnonzero(b.rows["target"] == one)
        if min(len(of_a), len(of_b)) >= _OF_CLASS:
            names = [f"{one}, cell {i}" for i in range(coarse[0].shape[1])]
            columns.append(_Columns("attribution of class", names, [coarse[0][of_a], coarse[1][of_b]], (of_a, of_b)))
    return columns


def _shares(maps: NDArray[Any]) -> NDArray[Any]:
    """Windows over their row's magnitude."""
    whole = np.abs(maps).sum((1, 2), keepdims=True)
    return np.asarray(maps / np.where(whole > 0, whole, 1.0))


def _coarse(shares: NDArray[Any]) -> NDArray[Any]:
    """The map in at most 4 × 4 cells."""
    summed = shares
    for axis in (1, 2):
        edges = np.unique(np.linspace(0, shares.shape[axis], _CELLS + 1).astype(int)[:-1])
        summed = np.add.reduceat(summed, edges, axis=axis)
    return summed.reshape(len(shares), -1)
