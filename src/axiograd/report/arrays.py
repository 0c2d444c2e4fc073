"""Tensors become arrays that can be drawn: channels reduced, scale found, images brought to [0, 1], files of pixels."""

import base64
import io
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from axiograd._extras import optional
from axiograd.errors import ConfigurationError, InputError, NotFiniteError
from axiograd.report.colours import CLIP

Array: TypeAlias = NDArray[np.float64]

#: Images of at least so many pixels a side are photos: signs of neighbours cancel, and sums over windows show more.
PHOTO, WINDOW = 128, 8

_MAP, _PICTURE, _BATCH = 2, 3, 4
_GREY, _RGB = 1, 3


def to_array(values: Any, what: str = "attribution") -> Array:
    """A finite float64 array of a tensor (any device, dtype, with or without graph), array or list."""
    if isinstance(values, Tensor):
        values = values.detach().to(device="cpu", dtype=torch.float64).numpy()
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise InputError(f"The {what} of shape {array.shape} has no elements, so there is nothing to draw.")
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).sum())
        raise NotFiniteError(f"{bad} of {array.size} values of the {what} are NaN or Inf; they have no colour.")
    return array


def to_map(values: Any) -> Array:
    """One number per pixel, [height, width]; the channels of [channels, height, width] are summed.

    >>> to_map(torch.ones(3, 2, 2)).tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """
    array = to_array(values)
    if array.ndim == _PICTURE:
        return np.asarray(array.sum(0))
    if array.ndim != _MAP:
        raise InputError(f"A heatmap needs [height, width] or [channels, height, width], got shape {array.shape}.")
    return array


def window_sums(values: Array, size: int) -> Array:
    """Sums over windows of size × size pixels, smaller ones at the far edges: they add up to what the pixels do.

    >>> window_sums(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), 2).tolist()
    [[12.0, 9.0]]
    """
    rows = np.add.reduceat(values, np.arange(0, values.shape[0], size), axis=0)
    return np.asarray(np.add.reduceat(rows, np.arange(0, values.shape[1], size), axis=1), dtype=np.float64)


def in_windows(values: Array, size: int) -> Array:
    """A map of the same shape in which each pixel shows its window's sum."""
    sums = window_sums(values, size).repeat(size, axis=0).repeat(size, axis=1)
    return sums[: values.shape[0], : values.shape[1]]


def window_for(shape: Sequence[int], pool: int | None) -> int:
    """The side of the windows that a map is shown in: as wished, or by default 8 for photos and 1 for small images.

    >>> window_for((224, 224), None), window_for((28, 28), None), window_for((224, 224), 1)
    (8, 1, 1)
    """
    if pool is None:
        return WINDOW if min(shape[-2:]) >= PHOTO else 1
    if pool < 1:
        raise ConfigurationError(f"pool={pool!r}: expected a number of pixels, 1 for the raw map.")
    return pool


def separate(values: Any) -> list[Any]:
    """The samples of a batch [batch, channels, height, width] or a sequence; one sample is a list of one."""
    if isinstance(values, Tensor | np.ndarray):
        return list(values) if values.ndim >= _BATCH else [values]
    if isinstance(values, Sequence):
        return list(values)
    raise InputError(f"Expected a tensor, an array or a sequence of them, got {type(values).__name__}.")


def to_image(image: Any) -> Array:
    """RGB in [0, 1], [height, width, 3]; what does not lie within [0, 1] (or, as integers, [0, 255]) is stretched.

    >>> to_image(torch.tensor([[-1.0, 1.0]])).tolist()
    [[[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]]
    """
    is_bytes = getattr(image, "dtype", None) in {torch.uint8, np.dtype(np.uint8)}
    array = to_array(image, "image")
    if array.ndim == _MAP:
        array = array[None]
    if array.ndim == _PICTURE and array.shape[0] not in {_GREY, _RGB} and array.shape[-1] in {_GREY, _RGB}:
        array = np.moveaxis(array, -1, 0)
    if array.ndim != _PICTURE:
        raise InputError(f"An image needs [height, width] or [channels, height, width], got shape {array.shape}.")
    if array.shape[0] not in {_GREY, _RGB}:
        array = array.mean(0, keepdims=True)
    if is_bytes:
        array = array / 255
    low, high = float(array.min()), float(array.max())
    if low < 0 or high > 1:
        array = (array - low) / (high - low) if high > low else np.full_like(array, 0.5)
    return np.broadcast_to(np.moveaxis(array, 0, -1), (*array.shape[1:], _RGB))


def data_uri(pixels: Array) -> str:
    """The PNG file of grey levels or RGB in [0, 1], as an address that a page can hold.

    >>> data_uri(np.zeros((2, 2, 3)))[:30]
    'data:image/png;base64,iVBORw0K'
    """
    image = optional("PIL.Image", "plots", "drawing pictures", package="pillow")
    file = io.BytesIO()
    image.fromarray((np.asarray(pixels) * 255).round().astype(np.uint8)).save(file, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def bounding_box(mask: Any) -> tuple[int, int, int, int] | None:
    """(left, top, right, bottom) around what is not zero in [height, width] or [channels, height, width].

    >>> bounding_box(torch.tensor([[0, 0, 0], [0, 1, 1]]))
    (1, 1, 3, 2)
    """
    marked = np.abs(to_map(mask)) > 0
    rows, columns = np.flatnonzero(marked.any(1)), np.flatnonzero(marked.any(0))
    if not rows.size:
        return None
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def colour_end(maps: Sequence[Array], clip: float = CLIP, *, positive_only: bool = False) -> float:
    """Where the colours of maps end: the percentile of |attribution| over all of them, the largest where that is zero.

    >>> colour_end([np.zeros((2, 2))]), colour_end([np.full((2, 2), -3.0)])
    (1.0, 3.0)
    """
    if not 0 < clip <= 100:  # noqa: PLR2004  # percent
        raise ConfigurationError(f"clip={clip!r}: expected a percentile above 0 and up to 100.")
    magnitudes = np.concatenate([np.maximum(m, 0).ravel() if positive_only else np.abs(m).ravel() for m in maps])
    end = float(np.percentile(magnitudes, clip)) or float(magnitudes.max())
    # Values are divided by it, and a subnormal one would overflow.
    return end if end >= np.finfo(np.float64).tiny else 1.0
