"""From one painted image to others: the same place in all or in its class, or patches that look the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from axiograd.datasets.pictures import Mask, Pictures
from axiograd.studio.survey import Progress, quietly

How = Literal["place", "class", "patches"]
#: Root mean square difference of pixels in [0, 1] up to which patches look the same.
ALIKE = 0.1
#: An image, and by how many pixels the strokes move down and to the right.
Target = tuple[int, int, int]


def targets(
    how: How, image: int, mask: Mask, pictures: Pictures, rows: Sequence[int], on_progress: Progress = quietly
) -> list[Target]:
    """Where the strokes of an image go, among these rows."""
    others = [row for row in rows if row != image]
    if how == "patches":
        return similar(image, mask, pictures, others, on_progress)
    labels = pictures.targets.tolist()
    return [(row, 0, 0) for row in others if how == "place" or labels[row] == labels[image]]


def similar(
    image: int,
    mask: Mask,
    pictures: Pictures,
    rows: Sequence[int],
    on_progress: Progress = quietly,
    *,
    alike: float = ALIKE,
) -> list[Target]:
    """The place in each image that looks most like what was painted, where it does.

    With m the painted pixels, p the patch and x the image, the mean squared difference at a shift s is
    Σ m·(x(·+s) − p)² / Σ m = (m⋆x² − 2·(m·p)⋆x + Σ m·p²) / Σ m: two convolutions.
    """
    down, across = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    top, bottom, left, right = int(down[0]), int(down[-1]) + 1, int(across[0]), int(across[-1]) + 1
    inside = torch.from_numpy(mask[top:bottom, left:right].astype(np.float32))
    patch = _seen(pictures, [image])[0, :, top:bottom, left:right]
    count = float(inside.sum()) * len(patch)
    weights = inside.expand_as(patch)[None]
    found: list[Target] = []
    size = max(1, min(64, 2_000_000 // mask.size))
    for start in range(0, len(rows), size):
        on_progress(start, len(rows))
        chosen = list(rows[start : start + size])
        x = _seen(pictures, chosen)
        squared = F.conv2d(x.square(), weights) - 2 * F.conv2d(x, weights * patch) + float((inside * patch**2).sum())
        difference = (squared / count).clamp(min=0).sqrt().flatten(1)
        best, place = difference.min(1)
        wide = squared.shape[-1]
        for row, off, at in zip(chosen, best.tolist(), place.tolist(), strict=True):
            if off <= alike:
                found.append((row, at // wide - top, at % wide - left))
    return found


def _seen(pictures: Pictures, rows: Sequence[int]) -> Tensor:
    seen = np.stack([pictures.picture(row) for row in rows])
    return torch.from_numpy(seen).permute(0, 3, 1, 2).float().div_(255)
