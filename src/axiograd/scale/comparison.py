"""Two tables of attributions: which windows, regions and classes changed, by a test with a known error rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axiograd import report
from axiograd.errors import ConfigurationError, InputError
from axiograd.report import canvas
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

    def plot(self, *, path: canvas.Destination = None) -> Any:
        """Maps of windows before and after, and the differences that are called changed; for a table's rows, bars."""
        title, note = str(self).splitlines()[:2]
        if self.maps is not None and len(self.maps[0]) > 1:
            before, after, p = self.maps
            maps = before, after, np.where(p <= self.alpha, after - before, 0.0)
            titles = "before: share of magnitude", "after", "after − before, where changed"
            return report.heatmap(maps, titles=titles, clip=100.0, pool=1, title=title, note=note, path=path)
        shown = self.changes[:_SHOWN]
        names = [f"{change.kind} {change.name}" for change in shown]
        figure = report.feature_bars(np.array([change.t for change in shown]), names, title=title, note=note)
        figure.axes[0].set_xlabel("t of after − before")
        return canvas.save(figure, path)


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
    a, b = _Table(Path(before)), _Table(Path(after))
    different = _differences(a, b)
    generator = np.random.default_rng(seed)
    places, together = _choose_rows(a, b, different, paired=paired, most=rows, generator=generator)
    a.read(places[0])
    b.read(places[1])
    n = len(places[0]), len(places[1])
    blocks = _blocks(a, b, together=together)
    drawn = int(generator.integers(2**31))
    if together:
        tested = paired_test([one.difference() for one in blocks], n[0], permutations, drawn)
    else:
        tested = two_samples([one.stacked(n[0]) for one in blocks], np.arange(sum(n)) >= n[0], permutations, drawn)
    changes = [
        Change(one.kind, name, *map(float, numbers))
        for one, t, p in zip(blocks, tested.t, tested.p, strict=True)
        for name, *numbers in zip(one.names, *(values.mean(0) for values in one.values), t, p, strict=True)
    ]
    changes.sort(key=lambda change: (change.p, -abs(change.t)))
    maps = None
    if a.shares is not None:  # the windows are the first block
        means = *(values.mean(0) for values in blocks[0].values), tested.p[0]
        maps = tuple(one.reshape(a.shares.shape[1:]) for one in means)
    return Comparison(tuple(changes), alpha, n, together, permutations, maps, tuple(different))


# Tables


class _Table:
    """A table: what it says about itself, the names and errors of its rows, and what some of them hold."""

    def __init__(self, path: Path) -> None:
        self.path, self.data = path, open_parquet(path)
        self.provenance = provenance_of(path, self.data)
        columns = [name for name in ("name", "error") if name in self.data.schema.names]
        with reading_parquet(path):
            #: Row i of all, by its place.
            self.index = self.data.to_table(columns=columns).to_pandas()
        self.index["good"], self.index["place"] = self.index["error"].isna(), range(len(self.index))
        #: Whether rows can be told apart.
        self.named = "name" in columns and self.index["name"].is_unique

    def read(self, places: NDArray[np.int64]) -> None:
        """Take some rows: numbers as a table of pandas, and `shares` of the magnitude ``[rows, down, across]``."""
        wanted = {"target", "prediction", "gini", "shape", "windows", "grid"}
        columns = [name for name in self.data.schema.names if name in wanted or name.startswith("share_")]
        with reading_parquet(self.path):
            self.rows = self.data.take(places, columns=columns).to_pandas()
        self.shares = None
        if "windows" in columns:
            grids = np.unique(np.stack(self.rows["grid"]), axis=0)
            if len(grids) > 1:
                listed = ", ".join(f"{down} × {across}" for down, across in grids[:4])
                raise InputError(
                    f"rows with different grids of windows ({listed}) have no common map: crop images to one size."
                )
            windows = np.stack(self.rows["windows"]).astype(np.float64)
            whole = np.abs(windows).sum(1, keepdims=True)
            self.shares = (windows / np.where(whole > 0, whole, 1.0)).reshape(-1, *grids[0])

    def window_names(self) -> list[str]:
        """Windows by the pixels that they cover, or by the feature's name."""
        shape = self.rows["shape"].iloc[0]
        height, width = shape[-2:] if len(shape) > 2 else (1, shape[-1])  # noqa: PLR2004
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


def _differences(a: _Table, b: _Table) -> list[str]:
    """Tables of different methods cannot be compared; other differences are what one compares for, and are named."""
    there, here = a.provenance, b.provenance
    for key in _SAME:
        if there.get(key) != here.get(key):
            raise ConfigurationError(
                f"{a.path} and {b.path} differ in {key} ({there.get(key)} and {here.get(key)}): make both with the "
                "same one."
            )
    named = [f"{key}: {there.get(key)} → {here.get(key)}" for key in _NAMED if there.get(key) != here.get(key)]
    for table in (a, b):
        n, whole = len(table.index), table.provenance.get("rows", 0)
        if table.path.is_dir() and n < whole:
            named.append(f"{table.path} has {n:,} of its {whole:,} rows: the run has not ended")
    return named


def _choose_rows(
    a: _Table, b: _Table, remarks: list[str], *, paired: bool | None, most: int, generator: np.random.Generator
) -> tuple[Sequence[NDArray[np.int64]], bool]:
    """The places in either table of the rows that are compared, and whether in pairs; what to say is remarked."""
    pairs = a.index.merge(b.index, on="name") if a.named and b.named else None
    if paired and pairs is None:
        unnamed = b.path if a.named else a.path
        raise InputError(f"{unnamed} has no column `name` without repetitions: its rows cannot be paired.")
    if paired is None:
        paired = pairs is not None and len(pairs) == len(a.index) == len(b.index)
        if pairs is not None and len(pairs) and not paired:
            remarks.append(f"{len(pairs):,} rows have the same name in both tables; paired=True compares only these")
    if paired and pairs is not None:
        good = np.flatnonzero(pairs["good_x"] & pairs["good_y"])
        if len(good) < len(pairs):
            remarks.append(f"{len(pairs) - len(good):,} rows with an error in one of the tables are left out of both")
        drawn = pairs.iloc[np.sort(generator.permutation(good)[:most])]
        places = [drawn["place_x"].to_numpy(), drawn["place_y"].to_numpy()]
    else:
        whole = [np.flatnonzero(table.index["good"]) for table in (a, b)]
        places = [np.sort(generator.permutation(some)[:most]) for some in whole]
    if min(map(len, places)) < 2:  # noqa: PLR2004  # a variance needs two
        what = (
            "rows have the same name in both tables, and no error"
            if paired
            else f"and {len(places[1])} rows without errors"
        )
        raise InputError(f"{len(places[0])} {what}: a comparison needs at least two.")
    return places, paired


# Numbers that are tested


@dataclass(frozen=True)
class _Block:
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


def _blocks(a: _Table, b: _Table, *, together: bool) -> list[_Block]:
    """Windows first, then regions and sparsity, predicted classes, and the maps of classes."""
    every = np.arange(len(a.rows)), np.arange(len(b.rows))
    blocks: list[_Block] = []
    shares = [table.shares for table in (a, b) if table.shares is not None]
    if shares:
        grids = [one.shape[1:] for one in shares]
        if grids[0] != grids[1]:
            raise InputError(f"grids of {grids[0]} and {grids[1]} windows: make both of one size.")
        signed = [one.reshape(len(one), -1) for one in shares]
        unusual = unusual_columns(np.abs(np.concatenate(signed)))
        # Its magnitude says whether a place is looked at; the signed share, whether it supports or opposes the answer.
        names = a.window_names()
        blocks.append(_Block("window", names, [np.abs(one) for one in signed], every))
        blocks.append(_Block("signed window", names, signed, every))
        blocks.append(_Block("rows", list(UNUSUAL), np.split(unusual, [len(a.rows)]), every))
    for name in [name for name in a.rows if name == "gini" or name.startswith("share_")]:
        kind, called = ("sparsity", name) if name == "gini" else ("region", name.removeprefix("share_"))
        rows = [np.flatnonzero(table.rows[name].notna()) for table in (a, b)]  # not all have a mask
        if together:
            rows = [np.intersect1d(rows[0], rows[1])] * 2
        if min(map(len, rows)) >= min(_OF_CLASS, len(a.rows), len(b.rows)):
            values = [table.rows[[name]].to_numpy(float)[of] for table, of in zip((a, b), rows, strict=True)]
            blocks.append(_Block(kind, [called], values, rows))
    counts = a.rows["prediction"].value_counts().add(b.rows["prediction"].value_counts(), fill_value=0)
    frequent = sorted(int(one) for one in counts.nlargest(_CLASSES).index)
    predicted = [(table.rows[["prediction"]].to_numpy() == frequent).astype(np.float64) for table in (a, b)]
    blocks.append(_Block("class", [str(one) for one in frequent], predicted, every))
    if shares:
        coarse = [_coarse(np.abs(one)) for one in shares]
        for one in frequent:
            # In pairs, the class is that of the first table: a row is compared with itself.
            rows = [np.flatnonzero(table.rows["target"] == one) for table in (a, a if together else b)]
            if min(map(len, rows)) >= _OF_CLASS:
                names = [f"{one}, cell {i}" for i in range(coarse[0].shape[1])]
                values = [cells[of] for cells, of in zip(coarse, rows, strict=True)]
                blocks.append(_Block("attribution of class", names, values, rows))
    return blocks


def _coarse(shares: NDArray[Any]) -> NDArray[Any]:
    """The map in at most 4 × 4 cells."""
    summed = shares
    for axis in (1, 2):
        edges = np.unique(np.linspace(0, shares.shape[axis], _CELLS + 1).astype(int)[:-1])
        summed = np.add.reduceat(summed, edges, axis=axis)
    return summed.reshape(len(shares), -1)
