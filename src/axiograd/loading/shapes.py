"""Of which shape a model's inputs are, as far as its layers and a trial tell."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from axiograd._state import in_mode, like_of
from axiograd.errors import ConfigurationError

#: Sides of images that are tried.
_SIDES = (224, 28, 32, 64, 96, 128, 227, 256, 299, 384)
_RGB = 3


def example_input(model: nn.Module, shape: tuple[int, ...] | None = None, batch: int = 2) -> Tensor:
    """Random inputs of the given shape of one sample, or of one that the model takes.

    >>> example_input(nn.Sequential(nn.Linear(5, 2)), None).shape
    torch.Size([2, 5])
    """
    sizes = guess_shape(model) if shape is None else shape
    return torch.randn(batch, *sizes, generator=torch.Generator().manual_seed(0)).to(like_of(model))


def read_shape(shape: str | None) -> tuple[int, ...] | None:
    """The sizes in "3,224,224" or "3x224x224"."""
    if shape is None:
        return None
    try:
        sizes = tuple(int(size) for size in shape.replace("x", ",").split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise ConfigurationError(f"--shape {shape}: expected the sizes of one sample, for example 3,224,224.")
    return sizes


def guess_shape(model: nn.Module) -> tuple[int, ...]:
    """What the model says of itself, or the first usual shape that it takes.

    >>> guess_shape(nn.Sequential(nn.Conv2d(1, 2, 5), nn.Flatten(), nn.Linear(2 * 24 * 24, 3)))
    (1, 28, 28)
    """
    if isinstance(known := getattr(model, "input_shape", None), tuple):
        return known
    first = next(
        (one for one in model.modules() if isinstance(one, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d)), None
    )
    if first is None:
        raise ConfigurationError("the shape of an input cannot be guessed from the model's layers: give --shape.")
    if isinstance(first, nn.Conv2d):
        sizes: list[tuple[int, ...]] = [(first.in_channels, side, side) for side in _SIDES]
        return next((shape for shape in sizes if takes(model, shape)), sizes[0])
    if isinstance(first, nn.Linear):
        row, *images = (first.in_features,), *_squares(first.in_features)
        return row if takes(model, row) else next((shape for shape in images if takes(model, shape)), row)
    return (first.in_channels, 128) if isinstance(first, nn.Conv1d) else (first.in_channels, 16, 64, 64)


def image_shape(model: nn.Module) -> tuple[int, ...] | None:
    """The shape of the images that a model takes, also one whose first layer takes them flat; None if it takes none.

    >>> image_shape(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)))
    (1, 28, 28)
    """
    try:
        shape = guess_shape(model)
    except ConfigurationError:
        return None
    if len(shape) == 1:
        return next((each for each in _squares(shape[0]) if takes(model, each)), None)
    return shape if len(shape) == 3 else None  # noqa: PLR2004  # channels, height, width


def takes(model: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether the model runs on a sample of this shape."""
    try:
        with torch.no_grad(), in_mode(model, training=False):
            model(torch.zeros(1, *shape).to(like_of(model)))
    except Exception:  # noqa: BLE001  # whatever a model raises: it does not
        return False
    return True


def _squares(numbers: int) -> list[tuple[int, ...]]:
    """Grey and coloured square images of so many numbers."""
    sides = {channels: math.isqrt(numbers // channels) for channels in (1, _RGB)}
    return [(channels, side, side) for channels, side in sides.items() if channels * side * side == numbers]
