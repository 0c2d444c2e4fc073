"""Masks and boxes per sample, some of which may be missing."""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from axiograd._boxes import covered_pixels
from axiograd.attribution.passes import listed
from axiograd.errors import ConfigurationError, NotFiniteError

#: One map per sample; a missing one is None in a sequence (or False in the accompanying `has_...`).
Maps: TypeAlias = Tensor | Sequence[Tensor | None] | None

#: `x0 y0 x1 y1` per sample [batch, 4], several [batch, k, 4] (NaN rows are padding), or a sequence of [k, 4] or None.
Boxes: TypeAlias = Tensor | Sequence[Tensor | None]

_CORNERS = 4
_IMAGE_AXES = 4  # batch, channel, height, width


def as_tensor(value: object, name: str) -> Tensor:
    """Tensors as they are, NumPy's arrays and lists of numbers as tensors."""
    if isinstance(value, Tensor):
        return value
    try:
        return torch.tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigurationError(f"{name!r} of type {type(value).__name__} is not a tensor: {error}.") from error


def align(maps: Maps, present: Tensor | None, like: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """The maps as one tensor that broadcasts to `like` [batch, *features], and which samples have one [batch].

    Maps that are missing come out as zeros, whatever stood in their place.
    """
    batch = len(like)
    has = torch.ones(batch, dtype=torch.bool, device=like.device)
    if present is not None:
        present = as_tensor(present, f"has_{name}")
        if present.dtype != torch.bool or present.shape != (batch,):
            raise ConfigurationError(
                f"'has_{name}' must be a boolean tensor of shape [{batch}], got {present.dtype} "
                f"of shape {list(present.shape)}."
            )
        has = present.to(like.device)
    if maps is None:
        return torch.zeros_like(like), torch.zeros_like(has)
    if isinstance(maps, list | tuple):
        stacked = _stack(maps, like, name)
        has = has & torch.tensor([item is not None for item in maps], device=like.device)
    else:
        stacked = as_tensor(maps, name)
    maps = _weights(stacked).to(device=like.device, dtype=like.dtype)
    if maps.ndim == like.ndim - 1 and like.ndim == _IMAGE_AXES:
        maps = maps.unsqueeze(1)
    fits = maps.ndim == like.ndim and all(m in {1, n} for m, n in zip(maps.shape, like.shape, strict=True))
    if not fits or len(maps) != batch:
        raise ConfigurationError(
            f"{name!r} of shape {list(maps.shape)} does not fit attributions of shape {list(like.shape)}; "
            "give one map per sample (expand a shared one)."
        )
    has_like = has.reshape(-1, *[1] * (like.ndim - 1))
    found = torch.where(has_like, maps, torch.zeros_like(maps))
    require_finite(found, name)
    return found, has


def _weights(maps: Tensor) -> Tensor:
    """Bytes are read as images are: 255 is 1; bytes of 0 and 1 only are 0 and 1."""
    if maps.dtype != torch.uint8:
        return maps
    weights = maps.float()
    return torch.where(weights.amax() > 1, weights / 255, weights) if maps.numel() else weights


def require_finite(values: Tensor, name: str) -> None:
    """Raise on NaN or Inf, and name the samples: one of them would turn every weight into NaN."""
    if torch.compiler.is_compiling() or not values.is_floating_point() or values.isfinite().all():
        return
    samples = listed(~values.reshape(len(values), -1).isfinite().all(1))
    raise NotFiniteError(
        f"{name!r} of sample {samples} of the batch has values that are NaN or infinite in "
        f"{values.dtype}; fix them, or mark the sample as having none (None in a list, False in 'has_...')."
    )


def _stack(maps: Sequence[Tensor | None], like: Tensor, name: str) -> Tensor:
    if len(maps) != len(like):
        raise ConfigurationError(f"{name!r} has {len(maps)} entries for a batch of {len(like)}.")
    read = [None if item is None else as_tensor(item, name) for item in maps]
    given = [item for item in read if item is not None]
    if not given:
        return torch.zeros_like(like)
    if len({item.shape for item in given}) > 1:
        raise ConfigurationError(
            f"the maps in {name!r} differ in shape: {sorted({tuple(item.shape) for item in given})}."
        )
    empty = torch.zeros_like(given[0])
    return torch.stack([empty if item is None else item for item in read])


def inside_boxes(boxes: Boxes, like: Tensor) -> tuple[Tensor, Tensor]:
    """The union of each sample's boxes as a mask [batch, height, width], and which samples have a box.

    Which pixels a box covers: `axiograd.metrics.boxes_to_masks`.
    """
    corners = _pad(boxes, like)
    padding = corners.isnan().all(-1)
    require_finite(torch.where(padding.unsqueeze(-1), 0.0, corners), "boxes")
    return covered_pixels(corners, *like.shape[-2:]).any(1), ~padding.all(-1)


def _pad(boxes: Boxes, like: Tensor) -> Tensor:
    batch = len(like)
    if not isinstance(boxes, list | tuple):
        corners = as_tensor(boxes, "boxes")
        corners = corners.unsqueeze(1) if corners.ndim == 2 else corners  # noqa: PLR2004 ([batch, 4])
    else:
        given = [like.new_empty(0, _CORNERS) if item is None else as_tensor(item, "boxes") for item in boxes]
        given = [item.unsqueeze(0) if item.ndim == 1 else item for item in given]
        if any(item.ndim != 2 or item.shape[1] != _CORNERS for item in given):  # noqa: PLR2004 ([k, 4])
            raise ConfigurationError(
                f"'boxes' must have x0 y0 x1 y1, got shapes {[list(item.shape) for item in given]}."
            )
        corners = torch.full((len(given), max([1, *map(len, given)]), _CORNERS), torch.nan, dtype=torch.float64)
        for row, item in zip(corners, given, strict=True):
            row[: len(item)] = item
    if corners.ndim != 3 or corners.shape[-1] != _CORNERS or len(corners) != batch:  # noqa: PLR2004
        raise ConfigurationError(
            f"'boxes' must be [batch, 4], [batch, k, 4] or a sequence of [k, 4] with batch = {batch}, "
            f"got shape {list(corners.shape)}."
        )
    return corners.to(device=like.device, dtype=torch.promote_types(corners.dtype, torch.float32))
