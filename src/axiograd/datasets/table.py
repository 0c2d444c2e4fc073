"""A CSV or Parquet file as a data set: features, categories, label, weights, and a part kept for validation."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from axiograd._extras import optional
from axiograd.datasets.columns import Columns, Missing, as_columns, as_numbers, as_word, check_column
from axiograd.datasets.schema import Schema
from axiograd.datasets.tensors import TensorData, check_choice
from axiograd.errors import ConfigurationError, DataMissingError, StorageError

TEXT = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
SUFFIXES = (*TEXT, ".parquet")


@dataclass(frozen=True, repr=False, eq=False)
class TableData(TensorData):
    """Rows of a table as a model takes them, with the `schema` that made them and, where there are some, weights."""

    weights: Tensor | None = None
    schema: Schema | None = None
    #: Where the rows stand in the file.
    rows: tuple[int, ...] = ()


def table(
    path: str | Path | Any,
    *,
    label: str,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    categories: Sequence[str] = (),
    missing: Missing = "error",
    standardise: bool = True,
    target: Literal["auto", "class", "number"] = "auto",
    weights: str | None = None,
    split: str = "train",
    split_column: str | None = None,
    holdout: float = 0.2,
    seed: int = 0,
) -> TableData:
    """The rows of one split of a table, prepared by what its training rows say of themselves.

    `path` is a CSV, TSV or Parquet file, or a DataFrame. Words become categories (`categories` names those that look
    like numbers), numbers get mean 0 and standard deviation 1, empty cells are refused or become the `missing` mean or
    zero. `split` is "train" or "validation", of which `holdout` is the share, drawn by `seed`; or, with
    `split_column`, a value of that column, where "train" is what the model is trained on; or "all".

    >>> rows = {"age": [30, 50, 40, 60], "sex": ["f", "m", "m", "f"], "ill": [0, 1, 0, 1]}
    >>> data = table(rows, label="ill", holdout=0.25)
    >>> data
    TableData('the table, train': 3 samples of (3,), torch.float32)
    >>> data.schema, len(table(rows, label="ill", holdout=0.25, split="validation"))
    (Schema(age, sex [f, m] -> ill [0, 1]), 1)
    """
    is_file = isinstance(path, str | Path)
    content = read_columns(Path(path)) if is_file else as_columns(path)
    name = Path(path).name if is_file else "the table"
    left_out = [*drop, *(each for each in (split_column, weights) if each is not None)]
    for column in left_out:
        check_column(column, content)
    count = len(next(iter(content.values())))
    trained = _rows(content, count, "train", split_column, holdout, seed)
    chosen = trained if split == "train" else _rows(content, count, split, split_column, holdout, seed)
    schema = Schema.fit(
        take(content, trained),
        label=label,
        features=features,
        drop=left_out if features is None else (),
        categories=categories,
        missing=missing,
        standardise=standardise,
        target=target,
    )
    rows = take(content, chosen)
    return TableData(
        schema.encode(rows),
        schema.targets(rows),
        f"{name}, {split}",
        schema.encoded_names,
        weights=None if weights is None else _weights(weights, take(content, trained), rows),
        schema=schema,
        rows=tuple(chosen),
    )


def is_table(name: str | Path) -> bool:
    """Whether a file's name is that of a table.

    >>> is_table("patients.CSV.gz"), is_table("photo.png")
    (True, False)
    """
    return str(name).lower().endswith(SUFFIXES)


def read_columns(path: Path) -> Columns:
    """The columns of a CSV or TSV file, plain or gzipped, with names in its first line, or of a Parquet file."""
    if not path.is_file():
        raise DataMissingError(f"there is no file {path}.")
    if not is_table(path):
        raise ConfigurationError(f"{path} is not a table: expected {', '.join(SUFFIXES)}.")
    return _parquet(path) if path.suffix.lower() == ".parquet" else _text(path)


def take(content: Columns, rows: Sequence[int]) -> Columns:
    """Some rows of all columns."""
    return {name: [cells[row] for row in rows] for name, cells in content.items()}


def _text(path: Path) -> Columns:
    name = path.name.lower()
    try:
        content = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
        text = content.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        hint = "; if it is text, save it as UTF-8" if isinstance(error, UnicodeDecodeError) else ""
        raise StorageError(f"{path} is damaged, or not text: {error}{hint}.") from error
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if ".tsv" in name else ",")
    header = [name.strip() for name in next(reader, [])]
    if twice := [name for name in header if header.count(name) > 1]:
        raise StorageError(f"{path} has two columns {twice[0]!r}: give each its own name.")
    if header and all(map(_is_number, header)) and header != [str(i) for i in range(len(header))]:
        raise StorageError(f"{path} has numbers in its first line ({', '.join(header[:4])} …); put the names there.")
    if len(header) == 1 and ";" in header[0]:
        raise StorageError(f"{path} has semicolons between its names; save it with commas, or as .tsv with tabs.")
    rows = []
    for cells in reader:
        if not cells:
            continue
        if len(cells) != len(header):
            raise StorageError(f"{path}, line {reader.line_num}: {len(cells)} cells under {len(header)} names.")
        rows.append(cells)
    if not rows:
        raise StorageError(f"{path} has no rows below its first line, which holds the features' names.")
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def _parquet(path: Path) -> Columns:
    arrow = optional("pyarrow", "tables", "reading Parquet")
    try:
        content = as_columns(optional("pyarrow.parquet", "tables", "reading Parquet").read_table(path))
    except (arrow.ArrowException, OSError) as error:
        raise StorageError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}.") from error
    if not content or not len(next(iter(content.values()))):
        raise StorageError(f"{path} has no rows.")
    return content


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _rows(
    content: Columns, count: int, split: str, split_column: str | None, holdout: float, seed: int
) -> Sequence[int]:
    """Which rows a split has."""
    if split == "all":
        return range(count)
    if split_column is not None:
        words = [as_word(cell) for cell in content[split_column]]
        found = [row for row, word in enumerate(words) if word == split]
        if not found:
            known = ", ".join(sorted({str(word) for word in words})[:8])
            raise ConfigurationError(f"column {split_column!r} has no row with {split!r}; it has {known}.")
        return found
    check_choice("split", split, ("train", "validation", "all"))
    kept = round(holdout * count)
    if not 0 <= holdout < 1 or (split == "validation" and not kept) or kept == count:
        raise ConfigurationError(f"holdout={holdout} of {count} rows leaves none to {split} with.")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    return sorted(order[:kept] if split == "validation" else order[kept:])


def _weights(column: str, trained: Columns, rows: Columns) -> Tensor:
    """How much each row counts, 1 on average over the rows that are trained on."""
    numbers, of_all = as_numbers(rows[column]), as_numbers(trained[column])
    if numbers is None or of_all is None or not (np.concatenate([numbers, of_all]) >= 0).all() or not of_all.sum():
        raise ConfigurationError(f"weights {column!r}: a weight is a number of 0 or more in every row.")
    return torch.from_numpy(numbers / of_all.mean()).to(torch.get_default_dtype())
