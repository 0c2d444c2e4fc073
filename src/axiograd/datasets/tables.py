"""Tables as data: a CSV or Parquet file, or a DataFrame, from named columns to what a model takes and back."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from axiograd._extras import optional
from axiograd._io import read_header
from axiograd._names import choose_from
from axiograd.datasets.tensors import TensorData, check_choice
from axiograd.errors import ConfigurationError, DataMissingError, InputError, StorageError

Array = np.ndarray[Any, np.dtype[np.float64]]
Columns = Mapping[str, Sequence[Any]]
Missing = Literal["error", "mean", "zero"]

#: Different words from which on a column is no longer taken for one of categories.
MANY = 50
#: And from which on it is not, if it has another word in most rows.
FEW = 10
_WORDS = {"true": 1.0, "false": 0.0}
_EMPTY = {"", "nan", "na", "none", "null", "<na>", "nat"}


@dataclass(frozen=True)
class Column:
    """One column: a number with its mean and standard deviation in the training data, or a category with its values.

    >>> Column.fit("sex", ["f", "m", "f"]).encode(["m", None], "zero").tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    >>> Column.fit("age", [30, 50]).encode([60], standardise=True).tolist()
    [[2.0]]
    """

    name: str
    mean: float = 0.0
    std: float = 1.0
    #: Of a category, each of which has a column of its own in what the model takes.
    values: tuple[str, ...] = ()

    @classmethod
    def fit(cls, name: str, cells: Sequence[Any], missing: Missing = "mean", *, category: bool | None = None) -> Column:
        """Mean and standard deviation of numbers, the values of a category; None: a column of words is a category."""
        numbers = None if category else as_numbers(cells)
        if numbers is None and category is False:
            raise ConfigurationError(f"column {name!r} holds {first_word(cells)!r}, which is not a number.")
        if numbers is None:
            words = [as_word(cell) for cell in cells]
            values = sorted({word for word in words if word is not None}, key=natural)
            if category is None and (len(values) > MANY or (len(values) > FEW and 2 * len(values) > len(words))):
                raise ConfigurationError(
                    f"column {name!r} has {len(values):,} different words in {len(words):,} rows: leave it out (drop), "
                    "or name it among the categories."
                )
            if not values:
                raise ConfigurationError(f"column {name!r} is empty: leave it out (drop).")
            return cls(name, values=tuple(values))
        known = np.ones_like(numbers) if missing == "zero" else ~np.isnan(numbers)
        if not known.any():
            raise ConfigurationError(f"column {name!r} is empty: leave it out (drop).")
        filled = np.where(np.isnan(numbers), 0.0, numbers)
        mean = float((filled * known).sum() / known.sum())
        # Over all rows: cells that are filled with the mean do not spread.
        return cls(name, mean, float(np.sqrt((known * (filled - mean) ** 2).sum() / len(numbers))))

    @property
    def is_category(self) -> bool:
        """Whether it has values instead of numbers."""
        return bool(self.values)

    @property
    def width(self) -> int:
        """How many of the model's inputs it becomes."""
        return len(self.values) or 1

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """The names of those inputs."""
        return tuple(f"{self.name} = {value}" for value in self.values) or (self.name,)

    def encode(self, cells: Sequence[Any], missing: Missing = "error", *, standardise: bool = False) -> Array:
        """[rows, width]: numbers, to mean 0 and standard deviation 1 if wanted; a one for the category that it is.

        An empty cell becomes the mean, or zero; of a category, none of its values.
        """
        if self.is_category:
            return self._one_hot([as_word(cell) for cell in cells], missing)
        numbers = as_numbers(cells)
        if numbers is None:
            raise InputError(f"column {self.name!r} holds {first_word(cells)!r}, and was numbers in the training data.")
        empty = np.isnan(numbers)
        if empty.any():
            self._refuse_empty(int(empty.sum()), missing)
            numbers = np.where(empty, self.mean if missing == "mean" else 0.0, numbers)
        return ((numbers - self.mean) / (self.std or 1.0) if standardise else numbers)[:, None]

    def _one_hot(self, words: list[str | None], missing: Missing) -> Array:
        if empty := words.count(None):
            self._refuse_empty(empty, missing)
        places = {value: i for i, value in enumerate(self.values)}
        if unknown := next((word for word in words if word is not None and word not in places), None):
            raise InputError(
                f"column {self.name!r} holds {unknown!r}, which the training data had not: "
                f"{choose_from(unknown, self.values)}."
            )
        found = np.zeros((len(words), len(self.values)))
        for row, word in enumerate(words):
            if word is not None:
                found[row, places[word]] = 1.0
        return found

    def _refuse_empty(self, count: int, missing: str) -> None:
        if missing == "error":
            raise ConfigurationError(
                f'{count} empty cells in column {self.name!r}; say what to put there: missing = "mean" or "zero".'
            )

    def shown(self, cell: Any) -> str:
        """A cell as people read it: "39", "male", "–" where it is empty."""
        word = as_word(cell)
        if word is None:
            return "–"
        number = None if self.is_category else as_numbers([cell])
        return word if number is None else f"{number[0]:.6g}"


def as_columns(frame: Any) -> Columns:
    """The columns of a DataFrame of pandas, polars or pyarrow, or of a mapping of lists, by name."""
    if isinstance(frame, Mapping):
        found = {str(name): values for name, values in frame.items()}
    elif hasattr(frame, "to_pydict"):
        found = {str(name): values for name, values in frame.to_pydict().items()}
    elif hasattr(frame, "columns") and hasattr(frame, "__getitem__"):
        names = list(frame.columns)
        found = {str(name): frame[name].to_list() for name in names}
        if len(found) < len(names):
            raise InputError("two columns of the table have the same name: give each its own.")
    else:
        raise InputError(f"a table is a DataFrame or a mapping from names to columns, not a {type(frame).__name__}.")
    if len({len(values) for values in found.values()}) > 1:
        raise InputError(f"columns of different lengths: { {n: len(v) for n, v in found.items()} }.")
    return found


def check_column(name: str, table: Columns) -> None:
    """ConfigurationError unless the table has such a column, with the one that may be meant."""
    if name not in table:
        known = list(table)
        raise ConfigurationError(
            f"there is no column {name!r}: {choose_from(name, known, None if len(known) <= MANY else 8)}."
        )


def as_numbers(cells: Sequence[Any]) -> Array | None:
    """Numbers, NaN where a cell is empty; None where one is a word."""
    try:
        if getattr(getattr(cells, "dtype", None), "kind", "O") in "fiubOU":
            found = np.array(cells, dtype=np.float64)
            return None if np.isinf(found).any() else found
    except (TypeError, ValueError):
        pass  # a cell that is empty, or a word
    numbers = [_number(cell) for cell in cells]
    if any(number is None or math.isinf(number) for number in numbers):
        return None
    return np.array(numbers, dtype=np.float64)


def count_empty(cells: Sequence[Any]) -> int:
    """How many cells hold nothing.

    >>> count_empty(["1", "", "nan", "x", None])
    3
    """
    numbers = as_numbers(cells)
    return sum(as_word(cell) is None for cell in cells) if numbers is None else int(np.isnan(numbers).sum())


def as_word(cell: Any) -> str | None:
    """A cell as a word, whole numbers without a point; None where it is empty."""
    if isinstance(cell, bool | np.bool_):
        return "1" if cell else "0"
    text = str(cell).strip()
    if text.casefold() in _EMPTY:
        return None
    number = _number(text)
    return f"{number:.0f}" if number is not None and number.is_integer() and abs(number) < 2**53 else text


def _number(cell: Any) -> float | None:
    if cell is None:
        return math.nan
    text = str(cell).strip().casefold()
    if text in _EMPTY:
        return math.nan
    try:
        return _WORDS[text] if text in _WORDS else float(text)
    except ValueError:
        return None


def first_word(cells: Sequence[Any]) -> Any:
    return next(c for c in cells if (number := _number(c)) is None or math.isinf(number))


def natural(word: str) -> tuple[bool, float, str]:
    number = _number(word)
    return number is None, 0.0 if number is None else number, word


@dataclass(frozen=True)
class Schema:
    """Which columns a model takes, in which order and prepared how, and what its classes are called.

    >>> schema = Schema.fit({"age": [30, 50], "sex": ["f", "m"], "ill": ["no", "yes"]}, label="ill")
    >>> schema
    Schema(age, sex [f, m] -> ill [no, yes])
    >>> schema.encode({"sex": ["m"], "age": [60]})
    tensor([[2., 0., 1.]])
    >>> schema.sum_categories(torch.tensor([[0.5, 0.25, 0.75]]))
    tensor([[0.5000, 1.0000]])
    """

    columns: tuple[Column, ...]
    missing: Missing = "error"
    standardise: bool = True
    label: str | None = None
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.missing not in {"error", "mean", "zero"}:
            raise ConfigurationError(f"missing={self.missing!r} (--missing): choose error, mean or zero.")

    @classmethod
    def fit(
        cls,
        frame: Any,
        *,
        label: str | None = None,
        features: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        categories: Sequence[str] = (),
        missing: Missing = "error",
        standardise: bool = True,
        target: Literal["auto", "class", "number"] = "auto",
    ) -> Schema:
        """What a table says of itself: features are all columns but the label and those dropped, or those given."""
        table = as_columns(frame)
        for name in [*(features or ()), *drop, *categories, *([label] if label else [])]:
            check_column(name, table)
        names = list(features) if features is not None else [n for n in table if n not in {label, *drop}]
        if label in names:
            raise ConfigurationError(f"{label!r} is the label, and cannot be a feature too.")
        if stray := [name for name in categories if name not in names]:
            raise ConfigurationError(f"{stray[0]!r} is among the categories and not among the features.")
        if "" in names:
            raise ConfigurationError(
                "a column has no name, as the row numbers that pandas writes: save the table without (index=False), "
                'or leave the column out (drop = [""]).'
            )
        columns = tuple(Column.fit(n, table[n], missing, category=True if n in categories else None) for n in names)
        if not columns:
            raise ConfigurationError("no column is left to be a feature.")
        schema = cls(columns, missing, standardise, label)
        return schema if label is None else replace(schema, classes=_classes(label, table[label], target))

    @property
    def names(self) -> tuple[str, ...]:
        """The features as people know them."""
        return tuple(column.name for column in self.columns)

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """The model's inputs: a category has one for each of its values."""
        return tuple(name for column in self.columns for name in column.encoded_names)

    def encode(self, frame: Any) -> Tensor:
        """Rows [n, inputs] as the model takes them; columns that are not features are not looked at."""
        table = as_columns(frame)
        for name in self.names:
            check_column(name, table)
        parts = [c.encode(table[c.name], self.missing, standardise=self.standardise) for c in self.columns]
        return torch.from_numpy(np.concatenate(parts, axis=1)).to(torch.get_default_dtype())

    def targets(self, frame: Any) -> Tensor:
        """Of each row the index of its class, or [n, 1] numbers where the label is one."""
        if self.label is None:
            raise ConfigurationError("the table has no label; name its column.")
        table = as_columns(frame)
        check_column(self.label, table)
        cells = table[self.label]
        if empty := count_empty(cells):
            raise ConfigurationError(f"label {self.label!r} is empty in {empty:,} rows: leave them out of the table.")
        if not self.classes:
            numbers = as_numbers(cells)
            if numbers is None:
                raise InputError(f"label {self.label!r} holds {first_word(cells)!r}, which is not a number.")
            return torch.from_numpy(numbers).to(torch.get_default_dtype())[:, None]
        places = {name: i for i, name in enumerate(self.classes)}
        words = [as_word(cell) for cell in cells]
        if unknown := next((word for word in words if word not in places), None):
            raise InputError(f"label {self.label!r} holds {unknown!r}: {choose_from(unknown, self.classes)}.")
        return torch.tensor([places[str(word)] for word in words])

    def sum_categories(self, attributions: Tensor) -> Tensor:
        """[..., inputs] to [..., features]: what the columns of one category have together; sums stay as they are."""
        if attributions.shape[-1] != len(self.encoded_names):
            raise InputError(
                f"attributions of {attributions.shape[-1]} inputs, and the table has {len(self.encoded_names)}."
            )
        parts = attributions.split([column.width for column in self.columns], dim=-1)
        return torch.stack([part.sum(-1) for part in parts], dim=-1)

    def shown(self, frame: Any) -> list[tuple[str, ...]]:
        """The cells of each row as people read them."""
        table = as_columns(frame)
        return list(zip(*([c.shown(cell) for cell in table[c.name]] for c in self.columns), strict=True))

    @property
    def zero(self) -> str:
        """What the zero baseline is."""
        categories = any(column.is_category for column in self.columns)
        if self.standardise:
            return "zero, every number at its mean and no category" if categories else "zero, every feature at its mean"
        return "zero, every number 0 and no category" if categories else "zero, every feature 0"

    def to_dict(self) -> dict[str, Any]:
        """For a file's header."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Schema:
        """What `to_dict` gave; ValueError or TypeError for anything else, as a file may hold anything."""
        columns = tuple(_read_column(each) for each in content["columns"])
        if not columns or len({column.name for column in columns}) < len(columns):
            raise ValueError("its table has no columns, or two of one name.")
        label, classes = content.get("label"), content.get("classes", ())
        if not (label is None or isinstance(label, str)) or not all(isinstance(name, str) for name in classes):
            raise TypeError("its label and classes are words.")
        return cls(columns, content["missing"], bool(content["standardise"]), label, tuple(classes))

    @classmethod
    def read(cls, path: str | Path) -> Schema:
        """That of the table which `axiograd train` trained a model file on."""
        if not Path(path).is_file():
            raise DataMissingError(f"there is no file {path}.")
        try:
            return cls.from_dict(json.loads(read_header(Path(path)).get("axiograd.conversion", "{}")).get("table"))
        except Exception as error:
            raise StorageError(f"{path} does not say how a table is prepared for its model.") from error

    def __repr__(self) -> str:
        parts = [f"{c.name} [{', '.join(c.values)}]" if c.is_category else c.name for c in self.columns]
        label = "" if self.label is None else f" -> {self.label}"
        classes = f" [{', '.join(self.classes)}]" if self.classes else ""
        return f"Schema({', '.join(parts)}{label}{classes})"


def _classes(label: str, cells: Sequence[Any], target: str) -> tuple[str, ...]:
    if target not in {"auto", "class", "number"}:
        raise ConfigurationError(f"target={target!r}: choose auto, class or number.")
    numbers = as_numbers(cells)
    known = None if numbers is None else numbers[~np.isnan(numbers)]
    is_class = known is None or ((known == known.round()).all() and len(np.unique(known)) <= MANY)
    if target == "number" or (target == "auto" and not is_class):
        if numbers is None:
            raise ConfigurationError(f"label {label!r} holds {first_word(cells)!r}, which is not a number.")
        return ()
    words = {word for cell in cells if (word := as_word(cell)) is not None}
    if len(words) < 2:  # noqa: PLR2004
        raise ConfigurationError(f"label {label!r} has one value in all rows, {min(words, default='none')!r}.")
    return tuple(sorted(words, key=natural))


def _read_column(content: Mapping[str, Any]) -> Column:
    name, values = content["name"], content.get("values", ())
    mean, std = float(content.get("mean", 0.0)), float(content.get("std", 1.0))
    if not isinstance(name, str) or not all(isinstance(value, str) for value in values):
        raise TypeError("its table's names and values are words.")
    if not (math.isfinite(mean) and math.isfinite(std)):
        raise ValueError("its table has a mean or standard deviation that is not finite.")
    return Column(name, mean, std, tuple(values))


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
    try:
        if path.suffix.lower() == ".parquet":
            content = as_columns(optional("pandas", "tables", "reading Parquet").read_parquet(path))
        else:
            content = _read_text(path)
    except (OSError, EOFError, ValueError) as error:
        kind = "Parquet" if path.suffix.lower() == ".parquet" else "a table in UTF-8"
        raise StorageError(f"{path} cannot be read as {kind}: {str(error).splitlines()[0].rstrip('.')}.") from error
    if not content or not len(next(iter(content.values()))):
        raise StorageError(f"{path} has no rows.")
    return content


def _read_text(path: Path) -> Columns:
    """Cells as they are written; pandas would rename a name that is there twice, and fill up a row that is short."""
    content = gzip.decompress(path.read_bytes()) if path.name.lower().endswith(".gz") else path.read_bytes()
    with io.StringIO(content.decode("utf-8-sig"), newline="") as file:
        reader = csv.reader(file, delimiter="\t" if ".tsv" in path.name.lower() else ",")
        header = _header([name.strip() for name in next(reader, [])], path)
        rows = []
        for cells in filter(None, reader):
            if len(cells) != len(header):
                raise StorageError(f"{path}, line {reader.line_num}: {len(cells)} cells under {len(header)} names.")
            rows.append(cells)
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True)) if rows else {}


def _header(names: list[str], path: Path) -> list[str]:
    if twice := [name for name in names if names.count(name) > 1]:
        raise StorageError(f"{path} has two columns {twice[0]!r}: give each its own name.")
    if len(names) == 1 and ";" in names[0]:
        raise StorageError(f"{path} has semicolons between its names; save it with commas, or as .tsv with tabs.")
    if as_numbers(names) is not None and names != [str(i) for i in range(len(names))]:
        raise StorageError(f"{path} has numbers in its first line ({', '.join(names[:4])} …); put the names there.")
    return names


def take(content: Columns, rows: Sequence[int]) -> Columns:
    """Some rows of all columns."""
    return {name: [cells[row] for row in rows] for name, cells in content.items()}


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
