"""Whether attributions lie where the object is."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from axiograd._boxes import covered_pixels
from axiograd.errors import ConfigurationError, InputError
from axiograd.metrics._common import IMAGE_DIMS, Channels, format_samples, per_feature

_CORNERS = 4


def boxes_to_masks(boxes: Tensor, height: int, width: int) -> Tensor:
    """Boxes ``x0 y0 x1 y1`` in pixels as masks ``[batch, height, width]``, true where a pixel's centre is inside.

    Column j is inside where x0 ≤ j + ½ < x1: whole numbers are half-open ranges. Priors and data sets read boxes so.

    >>> boxes_to_masks(torch.tensor([[1, 0, 3, 1]]), 2, 4).int()
    tensor([[[0, 1, 1, 0], [0, 0, 0, 0]]], dtype=torch.int32)
    """
    if boxes.dim() != 2 or boxes.shape[1] != _CORNERS:  # noqa: PLR2004  # one row per box
        raise InputError(f"boxes of shape {tuple(boxes.shape)}: expected [batch, 4] with x0 y0 x1 y1.")
    _require_finite(boxes)
    return covered_pixels(boxes, height, width)


def _require_finite(regions: Tensor) -> None:
    if bad := format_samples(~regions.flatten(1).isfinite().all(1)):
        raise InputError(f"the region of sample {bad} is not finite: leave these samples out.")


def _read(attributions: Tensor, regions: Tensor, channels: Channels) -> tuple[Tensor, Tensor]:
    """Signed attributions per pixel and the region, both ``[batch, height, width]``."""
    a = attributions if attributions.dim() == IMAGE_DIMS else attributions.unsqueeze(1)
    if a.dim() != IMAGE_DIMS or channels == "none":
        raise InputError(
            f"attributions of shape {tuple(attributions.shape)}, channels={channels!r}: expected "
            "[batch, channels, height, width] or [batch, height, width], one value per pixel."
        )
    size = a.shape[-2:]
    _require_finite(regions)
    masks = boxes_to_masks(regions, *size) if regions.dim() == 2 else regions.bool()  # noqa: PLR2004
    masks = masks.squeeze(1) if masks.dim() == IMAGE_DIMS else masks
    if masks.shape != (len(a), *size):
        raise InputError(
            f"regions of shape {tuple(regions.shape)} for attributions of shape {tuple(attributions.shape)}: expected "
            "one box [batch, 4] or one mask [batch, height, width] per sample."
        )
    if empty := format_samples(~masks.flatten(1).any(1)):
        raise InputError(f"the region of sample {empty} contains no pixel: leave these samples out.")
    return per_feature(a, a, channels).double().unflatten(1, size), masks.to(a.device)


def energy_inside(attributions: Tensor, regions: Tensor, *, channels: Channels = "sum") -> Tensor:
    """Σ_inside A⁺ / Σ A⁺ per sample, the share of positive attribution inside the box or mask; 0 if there is none.

    >>> energy_inside(torch.tensor([[[3.0, 1.0], [-5.0, 0.0]]]), torch.tensor([[0, 0, 1, 2]]))
    tensor([0.7500], dtype=torch.float64)
    """
    a, masks = _read(attributions, regions, channels)
    positive = a.clamp(min=0)
    total = positive.sum((1, 2))
    return torch.where(total > 0, (positive * masks).sum((1, 2)) / total, 0.0)


def pointing_game(attributions: Tensor, regions: Tensor, *, tolerance: int = 0, channels: Channels = "sum") -> Tensor:
    """Whether the pixel with the highest attribution lies inside, or within ``tolerance`` pixels of it, per sample.

    The first of several highest pixels counts.

    >>> pointing_game(torch.tensor([[[3.0, 1.0], [-5.0, 0.0]]]), torch.tensor([[1, 0, 2, 1]]))
    tensor([False])
    """
    if tolerance < 0:
        raise ConfigurationError(f"tolerance={tolerance}: expected a number of pixels, at least 0.")
    a, masks = _read(attributions, regions, channels)
    if tolerance:
        grown = F.max_pool2d(masks.unsqueeze(1).float(), 2 * tolerance + 1, stride=1, padding=tolerance)
        masks = grown.squeeze(1) > 0
    return masks.flatten(1).gather(1, a.flatten(1).argmax(1, keepdim=True)).squeeze(1)


@dataclass(frozen=True, eq=False)
class BestOverlap:
    """The best overlap of a thresholded attribution map with the region, and the threshold that gives it."""

    iou: Tensor
    threshold: Tensor


def best_overlap(attributions: Tensor, regions: Tensor, *, channels: Channels = "sum") -> BestOverlap:
    """max_t |{A ≥ t} ∩ R| / |{A ≥ t} ∪ R| per sample, over every threshold that occurs.

    >>> best_overlap(torch.tensor([[[3.0, 1.0], [2.0, 0.0]]]), torch.tensor([[0, 0, 1, 2]])).iou
    tensor([1.], dtype=torch.float64)
    """
    a, masks = _read(attributions, regions, channels)
    values, order = a.flatten(1).sort(dim=1, descending=True, stable=True)
    inside = masks.flatten(1).gather(1, order).cumsum(1)
    chosen = torch.arange(1, values.shape[1] + 1, device=a.device)
    iou = inside.double() / (chosen + inside[:, -1:] - inside)
    # Equal values pass a threshold together: only the last of them is a set {A ≥ t}.
    last = torch.ones_like(values, dtype=torch.bool)
    last[:, :-1] = values[:, :-1] > values[:, 1:]
    best, place = torch.where(last, iou, -1.0).max(1, keepdim=True)
    return BestOverlap(best.squeeze(1), values.gather(1, place).squeeze(1))
