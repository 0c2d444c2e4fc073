"""From the columns of a table to what a model takes, and back: names, categories, means, classes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from axiograd._io import read_header
from axiograd._names import choose_from
from axiograd.datasets.columns import (
    MANY,
    Column,
    Missing,
    as_columns,
    as_numbers,
    as_word,
    check_column,
    count_empty,
    first_word,
    natural,
)
from axiograd.errors import ConfigurationError, DataMissingError, InputError, StorageError


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
        if missing != "zero" and (empty := [n for n in names if all(as_word(cell) is None for cell in table[n])]):
            more = f" and {len(empty) - 8} more" if len(empty) > 8 else ""  # noqa: PLR2004 - enough to find them
            are = "columns are empty: leave them" if len(empty) > 1 else "column is empty: leave it"
            raise ConfigurationError(f"{', '.join(map(repr, empty[:8]))}{more}: the {are} out (drop).")
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
