"""A CSV table as inputs: named columns are features, one of them may be the label."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from axiograd.errors import ConfigurationError, DataMissingError, StorageError

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_NUMBERS = {"": float("nan"), "nan": float("nan"), "na": float("nan"), "true": 1.0, "false": 0.0}


@dataclass(frozen=True)
class TableOptions:
    """What the command was told about a table."""

    label: str | None = None
    drop: tuple[str, ...] = ()
    missing: str = "error"
    standardise: bool = False

    def __post_init__(self) -> None:
        if self.missing not in {"error", "mean", "zero"}:
            raise ConfigurationError(f"--missing {self.missing}: choose error, mean or zero.")


@dataclass(frozen=True)
class FeatureTable:
    """Rows of features, ready for a model, and in words what was done to them."""

    inputs: Tensor
    features: tuple[str, ...]
    labels: tuple[int, ...] | None
    prepared: str

    @property
    def zero(self) -> str:
        """What the zero baseline is."""
        return "zero, every feature at its mean" if "mean 0" in self.prepared else "zero, every feature 0"


def is_table(name: str) -> bool:
    """Whether a file's name is that of a table."""
    return name.lower().endswith(SUFFIXES)


def read_table(path: Path, options: TableOptions) -> FeatureTable:
    """The table in a CSV or TSV file, plain or gzipped, with names in its first line."""
    header, rows = _cells(path)
    return prepare(header, rows, options, str(path))


def _cells(path: Path) -> tuple[list[str], np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    if not path.is_file():
        raise DataMissingError(f"there is no file {path}.")
    name = path.name.lower()
    try:
        content = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
        text = content.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} is damaged, or no text: {error}") from error
    reader = csv.reader(text.splitlines(), delimiter="\t" if ".tsv" in name else ",")
    header = next(reader, [])
    rows = []
    for cells in reader:
        if not cells:
            continue
        if len(cells) != len(header):
            raise StorageError(f"{path}, line {reader.line_num}: {len(cells)} cells under {len(header)} names.")
        rows.append([_number(cell, path, reader.line_num, column) for cell, column in zip(cells, header, strict=True)])
    if not rows:
        raise StorageError(f"{path} has no rows below its first line, which holds the features' names.")
    return header, np.array(rows, dtype=np.float64)


def _number(cell: str, path: Path, line: int, column: str) -> float:
    text = cell.strip().lower()
    try:
        return _NUMBERS[text] if text in _NUMBERS else float(text)
    except ValueError:
        raise StorageError(
            f"{path}, line {line}: {cell!r} in column {column!r} is no number; leave the column out by --drop {column}."
        ) from None


def prepare(
    header: Sequence[str],
    rows: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    options: TableOptions,
    source: str,
) -> FeatureTable:
    """Choose the columns, fill empty cells and scale, as the options say."""
    left_out = [name for name in (options.label, *options.drop) if name]
    unknown = [name for name in left_out if name not in header]
    if unknown:
        raise ConfigurationError(f"{source} has no column {unknown[0]!r}; it has {', '.join(header[:8])} …")
    labels = None
    if options.label is not None:
        column = rows[:, header.index(options.label)]
        if not np.isfinite(column).all() or (column != column.round()).any():
            raise ConfigurationError(f"--label {options.label}: a class is a whole number in every row.")
        labels = tuple(int(value) for value in column)
    kept = [i for i, name in enumerate(header) if name not in left_out]
    inputs = rows[:, kept]
    words = []
    empty = np.isnan(inputs)
    if empty.any():
        first = header[kept[int(empty.any(0).argmax())]]
        if options.missing == "error":
            raise ConfigurationError(
                f"{source}: {int(empty.sum())} empty cells, for example in column {first!r}; say what to put there by "
                "--missing mean or --missing zero."
            )
        known = np.where(empty, 0.0, inputs).sum(0) / np.maximum((~empty).sum(0), 1)
        inputs = np.where(empty, known if options.missing == "mean" else 0.0, inputs)
        words.append(f"{int(empty.sum()):,} empty cells filled with {options.missing}")
    if options.standardise:
        spread = inputs.std(0)
        inputs = (inputs - inputs.mean(0)) / np.where(spread > 0, spread, 1.0)
        words.append("columns to mean 0 and standard deviation 1 over the whole table")
    prepared = ", ".join(words) or "as in the file"
    return FeatureTable(torch.from_numpy(inputs), tuple(header[i] for i in kept), labels, prepared)
