"""Tables as data: a CSV or Parquet file, or a DataFrame, from named columns to what a model takes and back.

pandas reads them; it comes with `pip install 'axiograd[tables]'` and is imported only when a table is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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
Missing = Literal["error", "mean", "zero"]
#: A DataFrame whose columns are as `as_column` makes them, and one of those columns.
Frame = Any
Cells = Any

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
#: A column of words with more different ones than this is no category.
MANY = 50
#: Nor is one with more than this where most rows have a word of their own.
FEW = 10


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
        column = as_column(cells)
        if column.isna().all():
            raise ConfigurationError(f"column {name!r} is empty: leave it out (drop).")
        if category is False or (category is None and is_numeric(column)):
            numbers = require_numbers(column, f"column {name!r}")
            filled = numbers.fillna(0.0 if missing == "zero" else numbers.mean())
            return cls(name, float(filled.mean()), float(filled.std(ddof=0)))
        values = distinct_words(column)
        if category is None and (len(values) > MANY or (len(values) > FEW and 2 * len(values) > len(column))):
            raise ConfigurationError(
                f"column {name!r} has {len(values):,} different words in {len(column):,} rows: leave it out (drop), "
                "or name it among the categories."
            )
        return cls(name, values=values)

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
        column = as_column(cells)
        if missing == "error" and (empty := column.isna().sum()):
            raise ConfigurationError(
                f'{empty} empty cells in column {self.name!r}; say what to put there: missing = "mean" or "zero".'
            )
        if self.is_category:
            words = as_words(column)
            if unknown := sorted(set(words.dropna()) - set(self.values)):
                raise InputError(
                    f"column {self.name!r} holds {unknown[0]!r}, which the training data did not have: "
                    f"{choose_from(unknown[0], self.values)}."
                )
            return np.stack([words == value for value in self.values], axis=1).astype(np.float64)
        numbers = require_numbers(column, f"column {self.name!r}")
        filled: Array = numbers.fillna(self.mean if missing == "mean" else 0.0).to_numpy()
        return ((filled - self.mean) / (self.std or 1.0) if standardise else filled)[:, None]

    def shown(self, cell: Any) -> str:
        """A cell as people read it: "39", "male", "–" where it is empty."""
        text = str(cell).strip()
        if not text or pandas().isna(cell):
            return "–"
        try:
            return _written(float(text)) if self.is_category else f"{float(text):.6g}"
        except ValueError:
            return text


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
        """The schema of a table: features are all columns but the label and those dropped, or those given."""
        table = as_frame(frame)
        for name in [*(features or ()), *drop, *categories, *([label] if label else [])]:
            check_column(name, table)
        names = list(features) if features is not None else [n for n in table if n not in {label, *drop}]
        if label in names:
            raise ConfigurationError(f"{label!r} is the label, and cannot be a feature too.")
        if stray := [name for name in categories if name not in names]:
            raise ConfigurationError(f"{stray[0]!r} is listed in categories but is not a feature.")
        if "" in names:
            raise ConfigurationError(
                "a column has no name, as the row numbers that pandas writes: save the table without (index=False), "
                'or leave the column out (drop = [""]).'
            )
        if not names:
            raise ConfigurationError("no column is left to be a feature.")
        columns = tuple(Column.fit(n, table[n], missing, category=True if n in categories else None) for n in names)
        classes = () if label is None else _classes(label, table[label], target)
        return cls(columns, missing, standardise, label, classes)

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
        table = as_frame(frame)
        for name in self.names:
            check_column(name, table)
        parts = [c.encode(table[c.name], self.missing, standardise=self.standardise) for c in self.columns]
        return torch.from_numpy(np.concatenate(parts, axis=1)).to(torch.get_default_dtype())

    def targets(self, frame: Any) -> Tensor:
        """Of each row the index of its class, or [n, 1] numbers where the label is one."""
        if self.label is None:
            raise ConfigurationError("the table has no label; name its column.")
        table = as_frame(frame)
        check_column(self.label, table)
        cells = table[self.label]
        if empty := cells.isna().sum():
            raise ConfigurationError(f"label {self.label!r} is empty in {empty:,} rows: leave them out of the table.")
        if self.classes:
            return torch.from_numpy(Column(self.label, values=self.classes).encode(cells).argmax(1))
        numbers = require_numbers(cells, f"label {self.label!r}")
        return torch.tensor(numbers.to_numpy(), dtype=torch.get_default_dtype())[:, None]

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
        table = as_frame(frame)
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
        """What `to_dict` gave, also after JSON has made lists of its tuples."""
        columns = tuple(Column(**{**each, "values": tuple(each["values"])}) for each in content["columns"])
        return cls(**{**content, "columns": columns, "classes": tuple(content["classes"])})

    @classmethod
    def read(cls, path: str | Path) -> Schema:
        """That of the table which `axiograd train` trained a model file on."""
        if not Path(path).is_file():
            raise DataMissingError(f"there is no file {path}.")
        try:
            return cls.from_dict(json.loads(read_header(Path(path))["axiograd.conversion"])["table"])
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"{path} does not say how a table is prepared for its model.") from error

    def __repr__(self) -> str:
        parts = [f"{c.name} [{', '.join(c.values)}]" if c.is_category else c.name for c in self.columns]
        label = "" if self.label is None else f" -> {self.label}"
        classes = f" [{', '.join(self.classes)}]" if self.classes else ""
        return f"Schema({', '.join(parts)}{label}{classes})"


def _classes(label: str, cells: Cells, target: str) -> tuple[str, ...]:
    """The classes of a label; none where it is a number."""
    check_choice("target", target, ("auto", "class", "number"))
    values = distinct_words(cells)
    is_class = not is_numeric(cells) or (len(values) <= MANY and (cells.dropna() % 1 == 0).all())
    if target == "number" or (target == "auto" and not is_class):
        require_numbers(cells, f"label {label!r}")
        return ()
    if len(values) < 2:  # noqa: PLR2004
        raise ConfigurationError(f"label {label!r} has one value in all rows, {min(values, default='none')!r}.")
    return values


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
    content = read_frame(Path(path)) if is_file else as_frame(path)
    name = Path(path).name if is_file else "the table"
    left_out = [*drop, *(each for each in (split_column, weights) if each is not None)]
    for column in left_out:
        check_column(column, content)
    trained = content.iloc[_rows(content, "train", split_column, holdout, seed)]
    chosen = _rows(content, split, split_column, holdout, seed)
    schema = Schema.fit(
        trained,
        label=label,
        features=features,
        drop=left_out if features is None else (),
        categories=categories,
        missing=missing,
        standardise=standardise,
        target=target,
    )
    rows = content.iloc[chosen]
    return TableData(
        schema.encode(rows),
        schema.targets(rows),
        f"{name}, {split}",
        schema.encoded_names,
        weights=None if weights is None else _weights(weights, trained, rows),
        schema=schema,
        rows=tuple(chosen),
    )


def _rows(content: Frame, split: str, split_column: str | None, holdout: float, seed: int) -> list[int]:
    """Which rows a split has."""
    count = len(content)
    if split == "all":
        return list(range(count))
    if split_column is not None:
        found: list[int] = np.flatnonzero(as_words(content[split_column]) == split).tolist()
        if not found:
            known = ", ".join(distinct_words(content[split_column])[:8])
            raise ConfigurationError(f"column {split_column!r} has no row with {split!r}; it has {known}.")
        return found
    check_choice("split", split, ("train", "validation", "all"))
    kept = round(holdout * count)
    if not 0 <= holdout < 1 or (split == "validation" and not kept) or kept == count:
        raise ConfigurationError(f"holdout={holdout} of {count} rows leaves none to {split} with.")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    return sorted(order[:kept] if split == "validation" else order[kept:])


def _weights(column: str, trained: Frame, rows: Frame) -> Tensor:
    """How much each row counts, 1 on average over the rows that are trained on."""
    numbers, of_all = rows[column], trained[column]
    if not is_numeric(numbers) or not ((numbers >= 0).all() and (of_all >= 0).all() and of_all.sum()):
        raise ConfigurationError(f"weights {column!r}: every row needs a weight of 0 or more.")
    return torch.tensor((numbers / of_all.mean()).to_numpy(), dtype=torch.get_default_dtype())


# Tables as pandas has them


def pandas() -> Any:
    """The library, or what to install."""
    return optional("pandas", "tables", "reading tables")


def is_table(name: str | Path) -> bool:
    """Whether a file's name is that of a table.

    >>> is_table("patients.CSV.gz"), is_table("photo.png")
    (True, False)
    """
    return str(name).lower().endswith(SUFFIXES)


def read_frame(path: Path) -> Frame:
    """A CSV or TSV file, plain or gzipped, with names in its first line, or a Parquet file."""
    if not path.is_file():
        raise DataMissingError(f"there is no file {path}.")
    if not is_table(path):
        raise ConfigurationError(f"{path} is not a table: expected {', '.join(SUFFIXES)}.")
    is_parquet = path.suffix.lower() == ".parquet"
    try:
        frame = as_frame(pandas().read_parquet(path) if is_parquet else _read_text(path))
    except (OSError, EOFError, ValueError) as error:
        kind = "Parquet" if is_parquet else "a table in UTF-8"
        raise StorageError(f"{path} cannot be read as {kind}: {str(error).splitlines()[0].rstrip('.')}.") from error
    if frame.empty:
        raise StorageError(f"{path} has no rows.")
    return frame


def _read_text(path: Path) -> Frame:
    separator = "\t" if ".tsv" in path.name.lower() else ","
    frame = pandas().read_csv(path, sep=separator, skipinitialspace=True, encoding="utf-8-sig", low_memory=False)
    if not isinstance(frame.index, pandas().RangeIndex):  # where rows are longer than the header
        raise StorageError(f"{path} has more cells in a row than the {frame.shape[1]} names in its first line.")
    # What pandas calls a column without a name, such as the row numbers that it writes itself.
    return frame.rename(columns=lambda name: "" if name.startswith("Unnamed: ") else name.strip())


def as_frame(table: Any) -> Frame:
    """A table of pandas, polars or pyarrow, or a mapping of lists, as a DataFrame of columns with different names."""
    if hasattr(table, "to_pandas"):
        table = table.to_pandas()
    if not isinstance(table, Mapping | pandas().DataFrame):
        raise InputError(f"a table is a DataFrame or a mapping from names to columns, not a {type(table).__name__}.")
    try:
        frame = pandas().DataFrame(table)
    except ValueError as error:
        raise InputError(f"the columns do not make a table: {str(error).rstrip('.')}.") from error
    if frame.columns.has_duplicates:
        raise InputError("two columns of the table have the same name: give each its own.")
    return frame.rename(columns=str).apply(as_column)


def check_column(name: str, table: Frame) -> None:
    """ConfigurationError unless the table has such a column, with the one that may be meant."""
    if name not in table:
        known = list(table)
        raise ConfigurationError(
            f"there is no column {name!r}: {choose_from(name, known, None if len(known) <= MANY else 8)}."
        )


def as_column(cells: Sequence[Any] | Cells) -> Cells:
    """Cells as floating-point numbers, or, where one of them is something else, as words; missing where they are empty.

    >>> as_column(["1", "", None, True]).tolist(), as_column(["1", " x", ""]).tolist()
    ([1.0, nan, nan, 1.0], ['1', 'x', None])
    """
    column = pandas().Series(cells)
    if column.dtype.kind not in "biuf":
        column = column.astype(object)
        words = column.where(column.notna(), "").astype(str).str.strip().astype(object)
        column = column.where(words != "", None)
    try:
        numbers = pandas().to_numeric(column).astype(np.float64)
    except (ValueError, TypeError):  # the first word
        return words.where(words != "", None)
    infinite = np.isinf(numbers).any()
    return numbers.astype(str).astype(object).where(numbers.notna(), None) if infinite else numbers


def is_numeric(column: Cells) -> bool:
    """Whether `as_column` found numbers alone."""
    return bool(column.dtype == np.float64)


def require_numbers(column: Cells, what: str) -> Cells:
    """The column, or an InputError with the first of its words."""
    if not is_numeric(column):
        is_word = ~np.isfinite(pandas().to_numeric(column, errors="coerce")) & column.notna()
        raise InputError(f"{what} holds {column[is_word].iloc[0]!r}, which is not a number.")
    return column


def as_words(column: Cells) -> Cells:
    """The column as words, whole numbers without a point.

    >>> as_words(as_column([1, None, 2.5])).tolist()
    ['1', None, '2.5']
    """
    words = column.map(_written) if is_numeric(column) else column
    return words.astype(object).where(column.notna(), None)


def _written(number: float) -> str:
    return np.format_float_positional(number, trim="-")


def distinct_words(column: Cells) -> tuple[str, ...]:
    """The different words of a column, numbers in their order."""
    return tuple(sorted(as_words(column).dropna().unique(), key=float if is_numeric(column) else str))
