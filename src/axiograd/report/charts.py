"""What bars, waterfalls and overviews of features show; pages, notebooks and figures draw it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from axiograd.errors import InputError
from axiograd.report.arrays import Array, to_array

#: Points of an overview: more of them hide each other.
_POINTS = 300
#: A base that is so small a part of the values is what rounding left of zero.
_ROUNDING = 1e-6
#: Of the colours of an overview, for a feature's smallest and its largest value; not those of for and against.
_LOW, _HIGH = np.array([88.0, 185.0, 160.0]), np.array([118.0, 42.0, 131.0])


@dataclass(frozen=True)
class Bar:
    """A bar from `left` to `left + width`, in per cent of the chart; `kind` is its class in the style sheet."""

    name: str
    value: float
    kind: str
    left: float
    width: float


@dataclass(frozen=True)
class Strip:
    """A feature of an overview: for every sample (x in per cent, y in pixels, colour, what the pointer shows)."""

    name: str
    mean: float
    points: list[tuple[float, float, str, str]]


def plain(value: Any, *, signed: bool = False) -> str:
    """A number with four digits, or yes and no with a sign; words as they are.

    >>> plain(0.123456), plain(-1e-7), plain(2.0, signed=True), plain(True), plain(None), plain("KPM"), plain(1234567)
    ('0.1235', '−1e−7', '+2', '✓ yes', '–', 'KPM', '1,234,567')
    """
    if isinstance(value, Tensor | np.generic) and math.prod(value.shape) == 1:
        value = value.item()
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "✓ yes" if value else "✗ no"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    written = f"{value:{'+' if signed and value else ''}.4g}"
    return written.replace("e-0", "e-").replace("-", "−")


def labelled(names: Sequence[str] | None, values: Any, count: int) -> list[str]:
    """The names of features, with their values where there are some.

    >>> labelled(["sex", "age"], ["male", 39.0], 2), labelled(None, None, 1)
    (['sex = male', 'age = 39'], ['feature 0'])
    """
    labels = [f"feature {i}" for i in range(count)] if names is None else [str(name) for name in names]
    given = labels if values is None else list(values)
    if {len(labels), len(given)} != {count}:
        raise InputError(f"{len(labels)} names and {len(given)} values for {count} features: expected one each.")
    return labels if values is None else [f"{n} = {plain(v)}" for n, v in zip(labels, given, strict=True)]


def largest_first(labels: Sequence[str], numbers: Array, top: int) -> tuple[list[str], list[float]]:
    """The `top` largest, and what the others add up to.

    >>> largest_first(["a", "b", "c"], np.array([1.0, -3.0, 0.5]), 1)
    (['b', '2 others'], [-3.0, 1.5])
    """
    order = np.argsort(-np.abs(numbers), kind="stable")
    kept, rest = order[:top], order[top:]
    names, values = [labels[i] for i in kept], numbers[kept].tolist()
    if rest.size:
        names.append(f"{rest.size} other{'s' if rest.size > 1 else ''}")
        values.append(float(numbers[rest].sum()))
    return names, values


def bars(labels: Sequence[str], numbers: Any, *, top: int = 8, base: float | None = None) -> list[Bar]:
    """A bar per feature from zero; or from a base on, each from where the one before ended: a waterfall.

    >>> [(bar.name, bar.left, bar.width) for bar in bars(["a", "b"], [1.0, -3.0])]
    [('b', 0.0, 75.0), ('a', 75.0, 25.0)]
    >>> [(bar.name, bar.value) for bar in bars(["a", "b"], [1.0, -3.0], base=4.0)]
    [('base', 4.0), ('b', -3.0), ('a', 1.0), ('score', 2.0)]
    >>> bars(["a"], [1.0], base=-3e-8)[0].value
    0.0
    """
    array = to_array(numbers)
    names, values = largest_first(labels, array, top)
    kinds = ["positive" if value >= 0 else "negative" for value in values]
    if len(array) > top:
        kinds[-1] += " rest"
    starts = [0.0] * len(values)
    if base is not None:
        base = base if abs(base) > _ROUNDING * np.abs(array).sum() else 0.0
        ends = (base + np.cumsum([0.0, *values])).tolist()
        names, values, kinds = ["base", *names, "score"], [base, *values, ends[-1]], ["total", *kinds, "total"]
        starts = [base, *ends]
    stops = [
        start + (0.0 if kind == "total" else value) for start, value, kind in zip(starts, values, kinds, strict=True)
    ]
    low, high = min(*starts, *stops), max(*starts, *stops)
    whole = (high - low) or 1.0
    return [
        Bar(name, value, kind, 100 * (min(start, stop) - low) / whole, 100 * abs(stop - start) / whole)
        for name, value, kind, start, stop in zip(names, values, kinds, starts, stops, strict=True)
    ]


def overview(names: Sequence[str], attributions: Any, cells: Sequence[Sequence[Any]], *, top: int = 10) -> list[Strip]:
    """What each feature adds in every sample, the feature with the largest mean |attribution| first: a beeswarm.

    Points are coloured by the value of the feature, grey where it is a word.

    >>> strips = overview(["age", "sex"], [[1.0, 0.0], [-1.0, 0.5]], [[30, "f"], [50, "m"]])
    >>> strips[0].name, strips[0].points[0]
    ('age', (100.0, 18, '#58b9a0', 'age = 30: +1'))
    """
    array = to_array(attributions)
    rows = np.unique(np.linspace(0, len(array) - 1, min(len(array), _POINTS)).astype(int))
    limit = float(np.abs(array).max()) or 1.0
    means = np.abs(array).mean(0)
    strips = []
    for i in np.argsort(-means, kind="stable")[:top]:
        column = [cells[row][i] for row in rows]
        tints = _tints(column)
        crowd: dict[int, int] = {}
        points = []
        for row, cell, tint in zip(rows, column, tints, strict=True):
            value = float(array[row, i])
            x = 50 + 50 * value / limit
            # Those at the same place stand above and below each other in turn.
            place = crowd[round(x)] = crowd.get(round(x), 0) + 1
            y = 18 + min(place // 2 * 2.5, 15) * (-1) ** place
            points.append(
                (
                    round(x, 2),
                    round(y, 1) if place > 1 else 18,
                    tint,
                    f"{names[i]} = {plain(cell)}: {plain(value, signed=True)}",
                )
            )
        strips.append(Strip(names[i], float(means[i]), points))
    return strips


def _tints(column: Sequence[Any]) -> list[str]:
    try:
        numbers = np.array([float(cell) for cell in column])
    except (TypeError, ValueError):
        return ["#8a8f96"] * len(column)
    low, high = np.nanmin(numbers), np.nanmax(numbers)
    shares = np.nan_to_num((numbers - low) / ((high - low) or 1.0))
    return ["#{:02x}{:02x}{:02x}".format(*(_LOW + share * (_HIGH - _LOW)).round().astype(int)) for share in shares]
