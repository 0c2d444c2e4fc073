"""What a data set holds, told by a look that is cheap on a large one too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from axiograd.runs.differences import UNNAMED
from axiograd.runs.digests import digest
from axiograd.runs.identity import describe, of_library

#: Samples of a data set that are drawn, spread over the whole: all of a small one; of a list in memory, many more.
_DRAWN, _SMALL, _LISTED = 32, 2048, 20_000


def describe_samples(data: Any, draw: Callable[[int], Any]) -> dict[str, Any]:
    """Number, type, the numbers that there are one of for each sample, and samples spread over the whole.

    `draw(index)` gives a sample, in the same way each time it is asked. Tensors are read in full up to 256 MB each.

    >>> data = torch.utils.data.TensorDataset(torch.zeros(3, 2), torch.arange(3))
    >>> describe_samples(data, data.__getitem__)
    {'samples': 3, 'columns': {'tensors[0]': 'torch.float32 [3, 2] ...', 'tensors[1]': 'torch.int64 [3] ...'}}
    """
    own = getattr(type(data), "_run_identity", None)
    if own is not None:
        found: dict[str, Any] = own(data)
        return found
    n = len(data)
    columns = _columns(data, n)
    found = {"samples": n}
    if columns:
        found["columns"] = columns
    if isinstance(data, torch.utils.data.TensorDataset) or n == 0:
        return found
    places = spread(n, _LISTED if isinstance(data, list | tuple) else _SMALL if n <= _SMALL else _DRAWN)
    drawn = [describe(draw(place)) for place in places]
    if describe(draw(places[0])) != drawn[0]:
        found["drawn"] = f"{UNNAMED}samples that differ each time they are read"
    else:
        found["drawn"] = digest(repr(drawn))
    return found


def spread(n: int, most: int) -> list[int]:
    """Places among n, the first and the last too.

    >>> spread(100, 5), spread(3, 5)
    ([0, 25, 50, 74, 99], [0, 1, 2])
    """
    return list(range(n)) if n <= most else sorted({round(i * (n - 1) / (most - 1)) for i in range(most)})


def _columns(data: Any, n: int, depth: int = 3) -> dict[str, str]:
    """Attributes with a number for each sample, of a data set and of those that it is made of."""
    found: dict[str, str] = {}
    own = not of_library(type(data).__module__)
    for name, value in sorted(getattr(data, "__dict__", {}).items()):
        if name.startswith("_") and not own:
            continue
        for label, column in _parts(name, value):
            if (tensor := _numbers(column, n)) is not None:
                found[label] = describe(tensor)
        inner = hasattr(value, "__getitem__") and hasattr(value, "__len__") and hasattr(value, "__dict__")
        if depth and inner and not isinstance(value, Tensor):
            found |= {f"{name}.{key}": text for key, text in _columns(value, len(value), depth - 1).items()}
    return found


def _parts(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, tuple):
        return [(f"{name}[{place}]", part) for place, part in enumerate(value)] + [(name, value)]
    if isinstance(value, dict):
        return [(f"{name}.{key}", part) for key, part in value.items()]
    return [(name, value)]


def _numbers(column: Any, n: int) -> Tensor | None:
    """The numbers of a column with as many rows as there are samples; of (path, class) pairs, the class."""
    if isinstance(column, Tensor):
        return column if column.dim() and len(column) == n else None
    if isinstance(column, np.ndarray):
        numeric = column.ndim > 0 and len(column) == n and column.dtype.kind in "biuf"
        return torch.from_numpy(np.ascontiguousarray(column)) if numeric else None
    if not isinstance(column, list | tuple) or len(column) != n or n == 0:
        return None
    rows = [_leaves(row) for row in column]
    if not rows[0] or any(len(row) != len(rows[0]) for row in rows):
        return None
    return torch.tensor(rows, dtype=torch.float64)


def _leaves(row: Any) -> Sequence[float]:
    if isinstance(row, bool | int | float):
        return [float(row)]
    return [float(one) for one in row if isinstance(one, bool | int | float)] if isinstance(row, tuple) else []
