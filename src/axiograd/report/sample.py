"""One sample of the page: what is known at once, and what is read only when it comes into view."""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from axiograd.errors import InputError
from axiograd.report._png import data_uri
from axiograd.report.arrays import CLIP, Array, Channels, Limit, spoken, to_array, to_image, to_map

#: The view of a sample that is given one attribution without a name.
ONLY = "attribution"

_VECTOR = 1
#: Of a byte with a sign.
LEVELS = 127


@dataclass(frozen=True)
class Sample:
    """Views are the sample's attributions by name: methods, or before and after."""

    index: dict[str, Any]
    payload: dict[str, Any]
    views: tuple[str, ...]
    features: tuple[str, ...] = field(default=())
    #: Height and width of its maps before they are made smaller.
    size: tuple[int, ...] = ()


def read_sample(
    name: str,
    attributions: Any,
    *,
    image: Any,
    label: Any,
    prediction: Any,
    score: Any,
    completeness: Any,
    values: Any,
    features: Sequence[str] | None,
    boxes: Sequence[Sequence[float]],
    details: Mapping[str, Any],
    channels: Channels,
    clip: float,
    max_side: int,
) -> Sample:
    named: dict[str, Any] = dict(attributions) if isinstance(attributions, Mapping) else {ONLY: attributions}
    if not named:
        raise InputError(f"Sample {name!r} has no attribution: pass one, or {{'method': attribution, …}}.")
    views = tuple(str(v) for v in named)
    arrays = [to_array(a, f"attribution {v!r} of sample {name!r}") for v, a in named.items()]
    flat = arrays[0].ndim <= _VECTOR
    if any((a.ndim <= _VECTOR) != flat for a in arrays):
        raise InputError(f"Sample {name!r} mixes feature vectors and maps: shapes {[a.shape for a in arrays]}.")
    index: dict[str, Any] = {
        "name": str(name),
        "label": None if label is None else str(label),
        "prediction": [None if p is None else str(p) for p in _per_view(prediction, named)],
        "score": [_number(s) for s in _per_view(score, named)],
        "completeness": [_number(c) for c in _per_view(completeness, named)],
        "image": image is not None,
        "details": {str(k): str(v) for k, v in details.items()},
    }
    if flat:
        return _tabular(index, views, arrays, values, features)
    shape, payload = _pictures(name, arrays, image, channels, clip, max_side)
    index["shape"] = shape
    payload["boxes"] = [[float(edge) for edge in box] for box in boxes]
    return Sample(index, payload, views, size=arrays[0].shape[-2:])


def _per_view(given: Any, named: Mapping[str, Any]) -> list[Any]:
    if not isinstance(given, Mapping):
        return [given] * len(named)
    unknown = [k for k in given if k not in named]
    if unknown:
        raise InputError(f"{unknown} are not among the attributions {list(named)}.")
    return [given.get(view) for view in named]


def _number(value: Any) -> float | str | None:
    """JSON has neither NaN nor Inf; they are shown as words."""
    if value is None:
        return None
    number = float(value)
    return float(f"{number:.6g}") if math.isfinite(number) else str(number)


def _tabular(
    index: dict[str, Any], views: tuple[str, ...], arrays: list[Any], values: Any, features: Sequence[str] | None
) -> Sample:
    vectors = [a.reshape(-1) for a in arrays]
    size = vectors[0].size
    names = tuple(f"feature {i}" for i in range(size)) if features is None else tuple(str(f) for f in features)
    given = None if values is None else spoken(values)
    if any(v.size != len(names) for v in vectors) or (given is not None and len(given) != size):
        raise InputError(
            f"Sample {index['name']!r}: attributions of sizes {[v.size for v in vectors]}, {len(names)} feature names"
            f"{'' if given is None else f', {len(given)} values'}: expected the same number of each."
        )
    payload = {
        "bars": [[_number(x) for x in v] for v in vectors],
        "values": given,
    }
    return Sample(index, payload, views, names)


def _pictures(
    name: str, arrays: list[Any], image: Any, channels: Channels, clip: float, max_side: int
) -> tuple[list[int], dict[str, Any]]:
    maps = [to_map(a, channels) for a in arrays]
    shapes = {m.shape for m in maps}
    picture = None if image is None else to_image(image)
    if picture is not None:
        shapes.add(picture.shape[:2])
    if len(shapes) > 1:
        raise InputError(f"Sample {name!r}: image and attributions differ in size: {sorted(shapes)}.")
    block = max(1, math.ceil(max(maps[0].shape) / max_side))
    small = [shrink(m, block) for m in maps]
    packed = [{**pack(s, clip), "sum": float(m.sum())} for s, m in zip(small, maps, strict=True)]
    payload = {
        "image": None if picture is None else data_uri(shrink(picture, block)),
        "maps": packed,
        "block": block,
    }
    return list(small[0].shape), payload


def shrink(values: Array, block: int) -> Array:
    """Means of block × block pixels; those at the far edges may be smaller.

    >>> shrink(np.array([[1.0, 3.0, 5.0]]), 2).tolist()
    [[2.0, 5.0]]
    """
    if block == 1:
        return values
    result = values
    for axis in (0, 1):
        starts = np.arange(0, values.shape[axis], block)
        counts = np.diff(np.append(starts, values.shape[axis]))
        shape = [1] * values.ndim
        shape[axis] = -1
        result = np.add.reduceat(result, starts, axis=axis) / counts.reshape(shape)
    return np.asarray(result, dtype=np.float64)


def pack(values: Array, clip: float = CLIP) -> dict[str, Any]:
    """q = round(127·sign(a)·√(|a| / max|a|)), so that a = sign(q)·(q / 127)²·max|a| to within 0.8 % of max|a|.

    >>> pack(np.array([[0.0, -2.0]]))["largest"]
    2.0
    """
    limit = Limit.of([values], clip)
    divisor = limit.largest or 1.0
    levels = np.round(LEVELS * np.sign(values) * np.sqrt(np.abs(values) / divisor)).astype(np.int8)
    return {
        "levels": base64.b64encode(levels.tobytes()).decode(),
        "largest": limit.largest,
        "limit": limit.value,
        "sum": float(values.sum()),
    }
