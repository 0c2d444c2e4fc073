"""A CSV table as inputs: named columns are features, one of them may be the label."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from axiograd.errors import ConfigurationError, DataMissingError, StorageError

Array = np.ndarray[Any, np.dtype[np.float64]]

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_NUMBERS = {"": float("nan"), "nan": float("nan"), "na": float("nan"), "true": 1.0, "false": 0.0}


@dataclass(frozen=True)
class TableOptions:
    """What the command was told about a table."""

    label: str | None = None
    drop: tuple[str, ...] = ()
    missing: str = "error"
    standardise: bool = False
    #: Of the data that the model was trained on, not of the rows that are explained: stored, or a table of that data.
    statistics: Statistics | Path | None = None

    def __post_init__(self) -> None:
        if self.missing not in {"error", "mean", "zero"}:
            raise ConfigurationError(f"--missing {self.missing}: choose error, mean or zero.")


@dataclass(frozen=True)
class Statistics:
    """Mean and standard deviation of each column of the training data, by its name, and where they are from."""

    source: str
    columns: Mapping[str, tuple[float, float]]

    @classmethod
    def of(cls, header: Sequence[str], rows: Array, missing: str, source: str) -> Statistics:
        """Over all rows; empty cells do not count, or count as zero where that is what is put into them."""
        filled = np.where(np.isnan(rows), 0.0, rows)
        known = np.ones_like(rows) if missing == "zero" else ~np.isnan(rows)
        mean = (filled * known).sum(0) / np.maximum(known.sum(0), 1)
        # As many rows as there are: cells that are filled with the mean do not spread.
        spread = np.sqrt((known * (filled - mean) ** 2).sum(0) / len(rows))
        empty = np.flatnonzero(known.sum(0) == 0)
        columns = {name: (float(m), float(s)) for name, m, s in zip(header, mean, spread, strict=True)}
        return cls(source, {name: each for i, (name, each) in enumerate(columns.items()) if i not in empty})

    def arrays(self, names: Sequence[str]) -> tuple[Array, Array]:
        """Means and standard deviations in the order of these columns; a constant column is divided by 1."""
        if lacking := [name for name in names if name not in self.columns]:
            raise ConfigurationError(
                f"{self.source} has no values in a column {lacking[0]!r}: give the training data's table."
            )
        mean, spread = np.array([self.columns[name] for name in names], dtype=np.float64).reshape(-1, 2).T
        return mean, np.where(spread > 0, spread, 1.0)


@dataclass(frozen=True)
class FeatureTable:
    """Rows of features, ready for a model, and in words what was done to them."""

    inputs: Tensor
    features: tuple[str, ...]
    labels: tuple[int, ...] | None
    prepared: str
    #: What the zero baseline is.
    zero: str
    #: What a file needs to prepare other rows in the same way; empty where nothing was done.
    stored: dict[str, Any] = field(default_factory=dict)


def is_table(name: str) -> bool:
    """Whether a file's name is that of a table."""
    return name.lower().endswith(SUFFIXES)


def read_table(path: Path, options: TableOptions) -> FeatureTable:
    """The table in a CSV or TSV file, plain or gzipped, with names in its first line."""
    header, rows = _cells(path, lambda name: name not in options.drop)
    return prepare(header, rows, options, str(path))


def _cells(path: Path, wanted: Callable[[str], bool]) -> tuple[list[str], Array]:
    """Names and numbers; columns that are not wanted may hold anything, and come out empty."""
    if not path.is_file():
        raise DataMissingError(f"there is no file {path}.")
    name = path.name.lower()
    try:
        content = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
        text = content.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} is damaged, or not text: {error}") from error
    reader = csv.reader(text.splitlines(), delimiter="\t" if ".tsv" in name else ",")
    header = next(reader, [])
    if twice := [name for name in header if header.count(name) > 1]:
        raise StorageError(f"{path} has two columns {twice[0]!r}: give each its own name.")
    rows = []
    for cells in reader:
        if not cells:
            continue
        if len(cells) != len(header):
            raise StorageError(f"{path}, line {reader.line_num}: {len(cells)} cells under {len(header)} names.")
        named = zip(cells, header, strict=True)
        rows.append([_number(cell, path, reader.line_num, name) if wanted(name) else np.nan for cell, name in named])
    if not rows:
        raise StorageError(f"{path} has no rows below its first line, which holds the features' names.")
    return header, np.array(rows, dtype=np.float64)


def _number(cell: str, path: Path, line: int, column: str) -> float:
    text = cell.strip().lower()
    try:
        number = _NUMBERS[text] if text in _NUMBERS else float(text)
    except ValueError:
        number = math.inf
    if math.isinf(number):
        raise StorageError(
            f"{path}, line {line}: {cell!r} in column {column!r} is not a number; leave the column out, "
            f"--drop {column}."
        )
    return number


def prepare(
    header: Sequence[str],
    rows: Array,
    options: TableOptions,
    source: str,
) -> FeatureTable:
    """Choose the columns, fill empty cells and scale, as the options say."""
    left_out = [name for name in (options.label, *options.drop) if name]
    unknown = [name for name in left_out if name not in header]
    if unknown:
        raise ConfigurationError(f"{source} has no column {unknown[0]!r}; it has {', '.join(header[:8])} ….")
    labels = None
    if options.label is not None:
        column = rows[:, header.index(options.label)]
        if not np.isfinite(column).all() or (column != column.round()).any():
            raise ConfigurationError(f"--label {options.label}: a class is a whole number in every row.")
        labels = tuple(int(value) for value in column)
    names = _ordered([name for name in header if name not in left_out], options.statistics)
    kept = [header.index(name) for name in names]
    inputs = rows[:, kept]
    words = []
    if names != tuple(name for name in header if name not in left_out):
        words.append("columns in the training data's order")
    stored: dict[str, Any] = {}
    empty = np.isnan(inputs)
    if empty.any() and options.missing == "error":
        first = names[int(empty.any(0).argmax())]
        raise ConfigurationError(
            f"{source}: {int(empty.sum())} empty cells, for example in column {first!r}; say what to put there by "
            "--missing mean or --missing zero."
        )
    if empty.any() and options.missing == "zero":
        inputs = np.where(empty, 0.0, inputs)
        words.append(f"{int(empty.sum()):,} empty cells filled with zero")
    if options.standardise or (empty.any() and options.missing == "mean"):
        statistics = _given(options, names, source)
        columns = {name: statistics.columns[name] for name in names if name in statistics.columns}
        stored = {"standardise": options.standardise, "missing": options.missing, "columns": columns}
        (mean, spread), of = statistics.arrays(names), statistics.source
        if empty.any() and options.missing == "mean":
            inputs = np.where(empty, mean, inputs)
            words.append(f"{int(empty.sum()):,} empty cells filled with the mean of {of}")
        if options.standardise:
            inputs = (inputs - mean) / spread
            words.append(f"columns to mean 0 and standard deviation 1 of {of}")
    zero = "zero, every feature at its mean" if options.standardise else "zero, every feature 0"
    return FeatureTable(torch.from_numpy(inputs), names, labels, ", ".join(words) or "as in the file", zero, stored)


def _ordered(names: list[str], statistics: Statistics | Path | None) -> tuple[str, ...]:
    """In the order of the training data, which is the model's, where its columns have the same names."""
    if isinstance(statistics, Path):
        known = [name for name in _cells(statistics, lambda _: False)[0] if name in names]
    else:
        known = list(statistics.columns) if statistics is not None else []
    return tuple(known if set(known) == set(names) else names)


def _given(options: TableOptions, names: Sequence[str], source: str) -> Statistics:
    if isinstance(options.statistics, Path):
        header, rows = _cells(options.statistics, lambda name: name in names)
        if options.missing == "error" and np.isnan(rows[:, [name in names for name in header]]).any():
            raise ConfigurationError(f"{options.statistics} has empty cells: say --missing mean or --missing zero.")
        return Statistics.of(header, rows, options.missing, str(options.statistics))
    if options.statistics is None:
        wish = "--standardise" if options.standardise else "--missing mean"
        raise ConfigurationError(
            f"{wish} needs the means and standard deviations of the data that the model was trained on, and those of "
            f"{source} are others: name the training data's table, --statistics train.csv."
        )
    return options.statistics
