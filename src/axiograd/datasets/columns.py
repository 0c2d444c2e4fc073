"""One column of a table: numbers with their mean and spread, or categories; and tables as columns by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from axiograd._names import choose_from
from axiograd.errors import ConfigurationError, InputError

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
    kind = getattr(getattr(cells, "dtype", None), "kind", None)
    if kind is not None and kind in "fiub":
        found = np.asarray(cells, dtype=np.float64)
    elif (quick := _quickly(cells)) is not None:
        found = quick
    else:
        numbers = [_number(cell) for cell in cells]
        if any(number is None for number in numbers):
            return None
        found = np.array(numbers, dtype=np.float64)
    return None if np.isinf(found).any() else found


def _quickly(cells: Sequence[Any]) -> Array | None:
    """Cells that are all text or all numbers, read in one go where nothing in them is out of the ordinary."""
    try:
        if all(type(cell) is str for cell in cells):
            return np.array([cell or "nan" for cell in cells]).astype(np.float64)
        if all(type(cell) in {float, int} for cell in cells):
            return np.array(cells, dtype=np.float64)
    except ValueError:
        pass
    return None


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
