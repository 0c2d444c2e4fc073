"""Attributions as one byte per pixel, fine where they are small."""

import base64
from typing import Any

import numpy as np

from axiograd.report.arrays import CLIP, Array, Limit

LEVELS = 127


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


def unpack(packed: dict[str, Any], shape: tuple[int, ...]) -> Array:
    """What the page does in JavaScript."""
    levels = np.frombuffer(base64.b64decode(packed["levels"]), dtype=np.int8).reshape(shape).astype(float)
    return np.asarray(np.sign(levels) * (levels / LEVELS) ** 2 * packed["largest"], dtype=np.float64)
