"""From a cell of a table to a tensor that the model takes, or to the reason why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from axiograd.datasets.images import damage, decode, pillow
from axiograd.errors import AxiogradError, ConfigurationError, InputError

_COLOUR, _GREY = 3, 2


@dataclass(frozen=True)
class Broken:
    """A sample that cannot be read, and why."""

    reason: str


def as_sample(value: Any, preprocess: Callable[..., Tensor] | None) -> Tensor | Broken:
    """One cell as a tensor: pixels, encoded images and paths through `preprocess`, other numbers as they are.

    >>> as_sample(np.array([1, 2]), None)
    tensor([1., 2.])
    >>> as_sample(b"not an image", lambda image, seed: torch.ones(3, 2, 2)).reason
    "DamagedImageError: the image cannot be decoded: cannot identify image file ..."
    """
    if isinstance(value, Mapping):  # Hugging Face's images
        value = value.get("bytes") or value.get("path")
    if value is None:
        return Broken("there is no value")
    if isinstance(value, Tensor):
        return value
    if isinstance(value, bytes | str | Path):
        return _image(value, preprocess)
    array = _as_array(value)
    if isinstance(array, Broken):
        return array
    if preprocess is not None and array.dtype == np.uint8 and array.ndim in {_GREY, _COLOUR}:
        squeezed = array[..., 0] if array.ndim == _COLOUR and array.shape[2] == 1 else array
        try:
            return preprocess(pillow().fromarray(squeezed).convert("RGB"))
        except unreadable() as error:
            return Broken(f"{type(error).__name__}: {error}")
    return torch.from_numpy(np.array(array, dtype=np.float64 if array.dtype == np.float64 else np.float32))


def unreadable() -> tuple[type[Exception], ...]:
    """What is raised where one sample cannot be read."""
    return (*damage(), TypeError, AxiogradError)


def as_class(value: Any, column: str) -> int | None:
    """A label as a number; None for one that is missing.

    >>> as_class(2.0, "label"), as_class(float("nan"), "label")
    (2, None)
    """
    if value is None or value != value:  # noqa: PLR0124  # NaN, as pandas has it for what is missing
        return None
    try:
        if int(value) == value:
            return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(
        f"the label {str(value)!r} in the column {column!r} is not a class's number: say another column, label=."
    )


def _as_array(value: Any) -> np.ndarray[Any, Any] | Broken:
    try:
        array = np.asarray(value)
        if array.dtype == object:  # lists of lists, as Parquet gives them
            array = np.stack([np.asarray(one, dtype=np.float32) for one in value])
    except (TypeError, ValueError) as error:
        return Broken(f"{type(error).__name__}: {error}")
    if array.dtype.kind not in "biuf":
        return Broken(f"neither an image nor numbers, but {array.dtype}")
    return array


def _image(value: bytes | str | Path, preprocess: Callable[..., Tensor] | None) -> Tensor | Broken:
    if preprocess is None:
        raise ConfigurationError(
            "the column has encoded images or paths: say how they become the model's inputs, "
            "preprocess=axiograd.datasets.IMAGENET."
        )
    try:
        return preprocess(decode(value if isinstance(value, bytes) else Path(value)))
    except unreadable() as error:
        return Broken(f"{type(error).__name__}: {error}")
