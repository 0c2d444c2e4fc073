"""Two tables of attributions: which windows, regions and classes changed, by a test that knows its error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axiograd.errors import ConfigurationError, InputError
from axiograd.scale.folder import parts_of
from axiograd.scale.origin import check_alike, origin_of
from axiograd.scale.permutation import RowBlock, paired as paired_test, two_samples
from axiograd.scale.sources import opened
from axiograd.scale.statistics import maps_of
from axiograd.scale.summaries import Windows
from axiograd.scale.table import pyarrow
from axiograd.scale.unusual import NAMES, columns as unusual_columns

#: Rows of a class on either side from which it is looked at by itself, and the cells of its map, down and across.
_OF_CLASS, _CELLS = 20, 4
#: Most classes whose frequency is compared: the most frequent ones.
_CLASSES = 200
#: Relative differences that the same numbers may have, computed twice and stored in single precision.
_ROUNDING = 1e-5
_SHOWN = 10


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

    changes: tuple[Change, ...]
    alpha: float
    rows: tuple[int, int]
    paired: bool
    permutations: int
    #: Mean share of the magnitude in each window, before and after, and its adjusted p; None without windows.
    maps: tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None = None
    #: In what the tables differ by their own account: model, data, versions.
    different: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    sources: tuple[str, str] = ("", "")
    tested: int = 0

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
        verdict = f"{'CHANGED' if self.changed else 'no change'}: {len(self.significant)} of {self.tested} numbers"
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
            "tested": self.tested,
            "different": list(self.different),
            "changes": [vars(change) for change in self.significant],
        }


@dataclass(frozen=True, eq=False)
class _ComparedRows:
    """What a comparison looks at, with a row per sample without error."""

    names: NDArray[Any]
    target: NDArray[Any]
    prediction: NDArray[Any]
    numbers: dict[str, NDArray[Any]]
    maps: NDArray[Any] | None
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.names)

    def at(self, places: NDArray[Any]) -> _ComparedRows:
        numbers = {name: values[places] for name, values in self.numbers.items()}
        maps = None if self.maps is None else self.maps[places]
        return _ComparedRows(
            self.names[places], self.target[places], self.prediction[places], numbers, maps, self.shape
        )


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

    Windows are shares of their row's magnitude, so that a model with larger logits is not a changed one. Where both
    have the same rows (`paired`, found out by their names), rows are compared with themselves. Of tables with more than
    `rows` rows as many are drawn. All numbers are tested together (`axiograd.scale.permutation`).
    """
    if not 0 < alpha < 1 or permutations < round(2 / alpha):
        raise ConfigurationError(
            f"alpha={alpha}, permutations={permutations}: a p of alpha needs at least 2/alpha permutations."
        )
    origins = [origin_of(path) for path in (before, after)]
    told = [origin for origin, _ in origins]
    different = (*check_alike(told, (before, after)), *(missing for _, missing in origins if missing))
    generator = np.random.default_rng(seed)
    both = [_read(path, rows, seed) for path in (before, after)]
    same = len(both[0]) == len(both[1]) and bool((both[0].names == both[1].names).all())
    if paired and not same:
        both, same = _common(both)
    if min(map(len, both)) < 2:  # noqa: PLR2004  # a variance needs two
        raise InputError(f"{len(both[0])} rows against {len(both[1])} without errors: both need at least two.")
    together = same if paired is None else paired
    pairs = _pairs(both[0], both[1], together)
    draw = int(generator.integers(2**31))
    if together:
        found = paired_test([pair.difference() for pair in pairs], len(both[0]), permutations, draw)
    else:
        labels = np.concatenate([np.zeros(len(both[0]), bool), np.ones(len(both[1]), bool)])
        found = two_samples([pair.stacked(len(both[0])) for pair in pairs], labels, permutations, draw)
    features = tuple(told[1].get("features") or ())
    changes = [
        Change(pair.kind, name, *map(float, values))
        for pair, t, p in zip(pairs, found.t, found.p, strict=True)
        for name, *values in zip(pair.names, pair.before.mean(0), pair.after.mean(0), t, p, strict=True)
    ]
    changes = _named(changes, both[0], told[0], features)
    changes.sort(key=lambda change: (change.p, -abs(change.t)))
    maps = None
    if both[0].maps is not None:
        grid = both[0].maps.shape[1:]
        first, second = (values.mean(0).reshape(grid) for values in (pairs[0].before, pairs[0].after))
        maps = (first, second, found.p[0].reshape(grid))
    return Comparison(
        tuple(changes),
        alpha,
        (len(both[0]), len(both[1])),
        together,
        permutations,
        maps,
        different,
        features,
        (str(before), str(after)),
        len(changes),
    )


def _read(path: str | Path, most: int, seed: int) -> _ComparedRows:
    """The rows without errors, or `most` of them, drawn; part after part, so that memory is that of what is kept."""
    parts = parts_of(Path(path))
    total = sum(opened(part).metadata.num_rows for part in parts)
    chosen = np.ones(total, bool)
    if total > most:
        chosen = np.zeros(total, bool)
        chosen[np.random.default_rng(seed).permutation(total)[:most]] = True
    pa = pyarrow()
    tables, first = [], 0
    for part in parts:
        file = opened(part)
        wanted = {"name", "target", "prediction", "gini", "error", "shape", "windows", "grid"}
        columns = [name for name in file.schema_arrow.names if name in wanted or name.startswith("share_")]
        table = file.read(columns=columns)
        table = table.filter(pa.array(chosen[first : first + len(table)]))
        tables.append(table.filter(table["error"].is_null()))
        first += file.metadata.num_rows
    table = pa.concat_tables(tables)
    if not len(table):
        raise InputError(f"{path} has no row without an error: there is nothing to compare.")
    maps = maps_of(table) if "windows" in table.column_names else None
    numbers = {n: table[n].to_numpy() for n in table.column_names if n == "gini" or n.startswith("share_")}
    names = np.asarray(table["name"].to_pylist() if "name" in table.column_names else range(len(table)), dtype=object)
    shape = tuple(table["shape"][0].as_py())
    return _ComparedRows(names, table["target"].to_numpy(), table["prediction"].to_numpy(), numbers, maps, shape)


def _common(both: list[_ComparedRows]) -> tuple[list[_ComparedRows], bool]:
    """The rows that both have, in one order."""
    places = [{name: i for i, name in enumerate(rows.names)} for rows in both]
    shared = [name for name in places[0] if name in places[1]]
    if len(shared) < 2:  # noqa: PLR2004
        raise InputError(f"{len(shared)} rows have the same name in both tables: they cannot be compared in pairs.")
    return [rows.at(np.array([place[n] for n in shared])) for rows, place in zip(both, places, strict=True)], True


@dataclass(frozen=True)
class _Pair:
    """Columns of both tables, for all rows or for those of a class: values, and which rows of either table they are."""

    kind: str
    names: list[str]
    before: NDArray[Any]
    after: NDArray[Any]
    rows: tuple[NDArray[Any], NDArray[Any]]

    @property
    def family(self) -> str:
        """Few columns that would drown in the others' threshold have one of their own."""
        return self.kind if self.kind == "rows" else ""

    def difference(self) -> RowBlock:
        away = self.after - self.before
        rounding = _ROUNDING * np.maximum(np.abs(self.after), np.abs(self.before))
        return RowBlock(np.where(np.abs(away) > rounding, away, 0.0), self.rows[0], self.family)

    def stacked(self, first: int) -> RowBlock:
        rows = np.concatenate([self.rows[0], self.rows[1] + first])
        return RowBlock(np.concatenate([self.before, self.after]), rows, self.family)


def _pairs(a: _ComparedRows, b: _ComparedRows, together: bool) -> list[_Pair]:
    """What is tested: windows, regions and sparsity, predicted classes, and the maps of classes."""
    if (a.maps is None) != (b.maps is None) or a.numbers.keys() != b.numbers.keys():
        raise ConfigurationError("the tables have different columns: make both with the same --summary and --region.")
    if a.maps is not None and b.maps is not None and a.maps.shape[1:] != b.maps.shape[1:]:
        raise InputError(f"grids of {a.maps.shape[1:]} and {b.maps.shape[1:]} windows: make both of one size.")
    every = np.arange(len(a)), np.arange(len(b))
    pairs: list[_Pair] = []
    shares = [_shares(rows.maps) for rows in (a, b) if rows.maps is not None]
    if shares:
        flat = [one.reshape(len(one), -1) for one in shares]
        places = [str(i) for i in range(flat[0].shape[1])]
        # Its magnitude says whether a place is looked at; the signed share, whether it supports or opposes the answer.
        pairs.append(_Pair("window", places, np.abs(flat[0]), np.abs(flat[1]), every))
        pairs.append(_Pair("signed window", places, flat[0], flat[1], every))
        unusual = unusual_columns(np.abs(np.concatenate(flat)))
        pairs.append(_Pair("rows", list(NAMES), unusual[: len(a)], unusual[len(a) :], every))
    for name in a.numbers:
        kind, called = ("sparsity", name) if name == "gini" else ("region", name.removeprefix("share_"))
        of_a, of_b = (np.flatnonzero(np.isfinite(rows.numbers[name])) for rows in (a, b))  # not all have a mask
        if together:
            of_a = of_b = np.intersect1d(of_a, of_b)
        if min(len(of_a), len(of_b)) >= min(_OF_CLASS, len(a), len(b)):
            values = a.numbers[name][of_a][:, None], b.numbers[name][of_b][:, None]
            pairs.append(_Pair(kind, [called], *values, (of_a, of_b)))
    found, counts = np.unique(np.concatenate([a.prediction, b.prediction]), return_counts=True)
    frequent = sorted(found[np.argsort(-counts, kind="stable")[:_CLASSES]].tolist())
    predicted = [(rows.prediction[:, None] == np.array(frequent)).astype(np.float64) for rows in (a, b)]
    pairs.append(_Pair("class", [str(one) for one in frequent], predicted[0], predicted[1], every))
    if shares:
        coarse = [_coarse(np.abs(one)) for one in shares]
        for one in frequent:
            # In pairs, the class is that of the first table: a row is compared with itself.
            of_a = np.flatnonzero(a.target == one)
            of_b = of_a if together else np.flatnonzero(b.target == one)
            if min(len(of_a), len(of_b)) >= _OF_CLASS:
                names = [f"{one}, cell {i}" for i in range(coarse[0].shape[1])]
                pairs.append(_Pair("attribution of class", names, coarse[0][of_a], coarse[1][of_b], (of_a, of_b)))
    return pairs


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


def _named(changes: list[Change], rows: _ComparedRows, told: dict[str, Any], features: tuple[str, ...]) -> list[Change]:
    """Windows by the pixels that they cover, or by the feature's name."""
    if rows.maps is None:
        return changes
    height, width = rows.shape[-2:] if len(rows.shape) > 2 else (1, rows.shape[-1])  # noqa: PLR2004
    across = rows.maps.shape[2]
    size = Windows(told["summaries"].get("Windows", {}).get("size")).size_of(height, width)

    def name(place: int) -> str:
        if features and size == 1 and height == 1:
            return features[place]
        y, x = divmod(place, across)
        if height == 1:
            return f"{x * size}" if size == 1 else f"{x * size} to {min((x + 1) * size, width) - 1}"
        return f"x {x * size}–{min((x + 1) * size, width)}, y {y * size}–{min((y + 1) * size, height)}"

    return [replace(c, name=name(int(c.name))) if c.kind.endswith("window") else c for c in changes]
