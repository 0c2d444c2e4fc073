"""A table as inputs: which columns are features, and how the training data says that they are prepared."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from torch import Tensor

from axiograd._names import choose_from
from axiograd.datasets import Column, Schema
from axiograd.datasets.tables import Frame, as_frame, distinct_words, is_numeric, read_frame, require_numbers
from axiograd.errors import ConfigurationError, InputError, StorageError

#: Where the statistics are from that a model's file holds.
STORED = "the data that the model was made with"


@dataclass(frozen=True)
class TableOptions:
    """What the command was told about a table."""

    label: str | None = None
    drop: tuple[str, ...] = ()
    missing: str = "error"
    standardise: bool = False
    #: Of the data that the model was trained on, not of the rows that are explained: stored, or a table of that data.
    statistics: Schema | Path | None = None
    #: What that data is called.
    of: str = STORED

    def __post_init__(self) -> None:
        if self.missing not in {"error", "mean", "zero"}:
            raise ConfigurationError(f"--missing {self.missing}: choose error, mean or zero.")


@dataclass(frozen=True)
class FeatureTable:
    """Rows of features, ready for a model, and in words what was done to them."""

    inputs: Tensor
    schema: Schema
    labels: tuple[int, ...] | None
    classes: tuple[str, ...]
    prepared: str
    content: Frame = field(default_factory=dict)
    #: What a file needs to prepare other rows in the same way; empty where nothing was done.
    stored: dict[str, Any] = field(default_factory=dict)

    def shown(self, row: int) -> tuple[str, ...]:
        """The cells of a row, as people read them."""
        return tuple(column.shown(self.content[column.name].iloc[row]) for column in self.schema.columns)


def read_table(path: Path, options: TableOptions) -> FeatureTable:
    """The table in a CSV, TSV or Parquet file."""
    return prepare(read_frame(path), options, str(path))


def prepare(content: Frame, options: TableOptions, source: str) -> FeatureTable:
    """Choose the columns, fill empty cells, scale, and open up categories, as the training data says."""
    content = as_frame(content)
    header = list(content)
    left_out = [name for name in (options.label, *options.drop) if name]
    if unknown := [name for name in left_out if name not in header]:
        raise ConfigurationError(f"{source} has no column {unknown[0]!r}: {choose_from(unknown[0], header, 8)}.")
    given = [name for name in header if name not in left_out]
    schema, of = _schema(content, given, options, source)
    if lacking := [name for name in schema.names if name not in content]:
        more = f", nor {len(lacking) - 1} others" if len(lacking) > 1 else ""
        raise ConfigurationError(
            f"{source} has no column {lacking[0]!r}{more}, which the model takes: {choose_from(lacking[0], header, 8)}."
        )
    words = []
    if [name for name in given if name in schema.names] != list(schema.names):
        words.append("columns in the training data's order")
    empty = {n: count for n in schema.names if (count := content[n].isna().sum())}
    if empty and schema.missing == "error":
        raise ConfigurationError(
            f"{source}: {sum(empty.values())} empty cells, for example in column {next(iter(empty))!r}; say what to "
            "put there by --missing mean or --missing zero."
        )
    if empty:
        filling = f"the mean of {of}" if schema.missing == "mean" else "zero"
        words.append(f"{sum(empty.values()):,} empty cells filled with {filling}")
    if schema.standardise:
        words.append(f"columns to mean 0 and standard deviation 1 of {of}")
    if categories := [column.name for column in schema.columns if column.is_category]:
        words.append(f"one input for each value of {', '.join(categories)}")
    labels, classes = _labels(content, options.label, schema, source)
    return FeatureTable(
        _encode(schema, content, source),
        schema,
        labels,
        classes,
        ", ".join(words) or "as in the file",
        content,
        schema.to_dict() if options.statistics is not None else {},
    )


def _encode(schema: Schema, content: Frame, source: str) -> Tensor:
    try:
        return schema.encode(content).double()
    except InputError as error:
        raise StorageError(f"{source}: {error}") from error


def _schema(content: Frame, names: list[str], options: TableOptions, source: str) -> tuple[Schema, str]:
    """How the columns are prepared, and what the data is called that says so."""
    missing = cast("Literal['error', 'mean', 'zero']", options.missing)
    if isinstance(options.statistics, Schema):
        stored = options.statistics
        schema = replace(stored, missing=stored.missing if missing == "error" else missing)
        return replace(schema, standardise=schema.standardise or options.standardise), options.of
    if options.statistics is not None:
        return _fitted(read_frame(options.statistics), names, options, str(options.statistics))
    some_empty = content[names].isna().any(axis=None)
    if options.standardise or (some_empty and missing == "mean"):
        wish = "--standardise" if options.standardise else "--missing mean"
        raise ConfigurationError(
            f"{wish} needs the means and standard deviations of the data that the model was trained on, and those of "
            f"{source} are others: name the training data's table, --statistics train.csv."
        )
    for name in names:
        try:
            require_numbers(content[name], f"column {name!r}")
        except InputError as error:
            raise StorageError(
                f"{source}: {error} Leave the column out, --drop {name}, or, if it is a category, name the training "
                "data's table, --statistics train.csv."
            ) from error
    return Schema(tuple(Column(name) for name in names), missing, standardise=False), source


def _fitted(train: Frame, names: list[str], options: TableOptions, of: str) -> tuple[Schema, str]:
    known = [name for name in train if name in names]
    for name in names:
        if name not in train or train[name].isna().all():
            raise ConfigurationError(f"{of} has no values in a column {name!r}: give the training data's table.")
        if options.missing == "error" and train[name].isna().any():
            raise ConfigurationError(f"{of} has empty cells: say --missing mean or --missing zero.")
    schema = Schema.fit(
        train[known],
        missing=cast("Literal['error', 'mean', 'zero']", options.missing),
        standardise=options.standardise,
    )
    label = options.label
    if label is not None and label in train and not is_numeric(train[label]):
        schema = replace(schema, label=label, classes=distinct_words(train[label]))
    return schema, of


def _labels(
    content: Frame, named: str | None, schema: Schema, source: str
) -> tuple[tuple[int, ...] | None, tuple[str, ...]]:
    """The class of each row, and what the classes are called where that is known."""
    label = named or (schema.label if schema.label in content else None)
    if label is None:
        return None, schema.classes
    cells = content[label]
    if schema.classes and label == schema.label:
        if named is None and cells.isna().any():
            return None, schema.classes  # rows whose class nobody knows yet
        return tuple(_encode_labels(schema, content, source)), schema.classes
    if schema.label == label and not schema.classes:  # a number to be predicted, not a class
        return None, ()
    if not is_numeric(cells) or (cells != cells.round()).any():
        raise ConfigurationError(f"--label {label}: a class is a whole number in every row.")
    return tuple(int(number) for number in cells), schema.classes


def _encode_labels(schema: Schema, content: Frame, source: str) -> list[int]:
    try:
        return [int(place) for place in schema.targets(content)]
    except (InputError, ConfigurationError) as error:
        raise StorageError(f"{source}: {error}") from error
