"""From one painted image to others: the same place, the class, the cluster, or patches that look the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from axiograd.datasets.pictures import Mask, Pictures
from axiograd.errors import InputError
from axiograd.studio.marks import Stroke
from axiograd.studio.survey import Between

HOWS = ("place", "class", "cluster", "patches")
#: Root mean square difference of pixels in [0, 1] up to which patches look the same.
ALIKE = 0.1
Target = tuple[int, int, int]


def painted(strokes: Sequence[Stroke], shape: tuple[int, int]) -> Mask:
    """What the strokes of an image cover together."""
    covered = np.zeros(shape, dtype=bool)
    for stroke in strokes:
        drawn = stroke.raster(*shape)
        covered = covered & ~drawn if stroke.kind == "erase" else covered | drawn
    if not covered.any():
        raise InputError("there is nothing painted on this image to spread; paint first.")
    return covered


def targets(
    how: str,
    image: int,
    mask: Mask,
    pictures: Pictures,
    rows: Sequence[int],
    between: Between,
    *,
    members: Sequence[int] | None = None,
) -> list[Target]:
    """Where the strokes go, `how` as in `HOWS`: image, and by how many pixels down and to the right they move."""
    others = [row for row in rows if row != image]
    if how == "place":
        return [(row, 0, 0) for row in others]
    if how == "class":
        label = int(pictures.targets[image])
        return [(row, 0, 0) for row in others if int(pictures.targets[row]) == label]
    if how == "cluster":
        if members is None:
            raise InputError("this image is in no cluster; spread to the same place, the class, or similar patches.")
        chosen = set(members)
        return [(row, 0, 0) for row in others if row in chosen]
    return similar(image, mask, pictures, others, between)


def similar(
    image: int, mask: Mask, pictures: Pictures, rows: Sequence[int], between: Between, *, alike: float = ALIKE
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
    size = max(1, min(64, 2_000_000 // max(1, mask.size)))
    for start in range(0, len(rows), size):
        between(start, len(rows))
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
