"""Masks of the images that a command is given: how much of an attribution lies inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from axiograd.cli.samples import Samples
from axiograd.datasets.folders import FolderMasks
from axiograd.datasets.images import DamagedImageError, damage, pillow
from axiograd.errors import ConfigurationError
from axiograd.loading.prepared import Prepared
from axiograd.metrics import energy_inside

_TURNED = (5, 6, 7, 8)  # orientations of EXIF that lie on their side
_ORIENTATION = 0x0112


@dataclass(frozen=True)
class ImageMasks:
    """Masks that go where their images go; by an image's place, true inside, or None where there is no mask."""

    source: str
    files: tuple[Path, ...]
    found: FolderMasks
    pixels: Prepared

    def __call__(self, row: int) -> Tensor | None:
        path = self.files[row]
        if str(path) not in self.found.found:
            return None
        return self.found.region(str(path), size_of(path), self.pixels.transform)


def with_masks(samples: Samples, masks: Path | None) -> Samples:
    """The samples with the masks of `--masks`; an error where they are not image files."""
    if masks is None:
        return samples
    if not samples.files or samples.pixels is None:
        raise ConfigurationError(f"--masks {masks}: masks belong to image files, and {samples.source} has none.")
    # Processes that read the masks may be in another folder.
    found = FolderMasks.find(masks.absolute(), [str(path) for path in samples.files], samples.root)
    return replace(samples, masks=ImageMasks(str(masks), samples.files, found, samples.pixels))


def size_of(path: Path) -> tuple[int, int]:
    """Width and height of an image as people see it, from its header."""
    try:
        with pillow().open(path) as image:
            width, height = image.size
            turned = image.getexif().get(_ORIENTATION) in _TURNED
    except damage() as error:
        raise DamagedImageError(f"{path} cannot be decoded: {str(error).rstrip('.')}.") from error
    return (height, width) if turned else (width, height)


def share_inside(attribution: Tensor, mask: Tensor | None) -> float | None:
    """The share of positive attribution inside; None where the mask has no pixel in what the model saw."""
    if mask is None or not bool(mask.any()):
        return None
    return float(energy_inside(attribution.unsqueeze(0), mask.unsqueeze(0))[0])


def outlined(picture: Tensor, mask: Tensor | None) -> Tensor:
    """A picture [3, height, width] in [0, 1] with the mask's rim in white, and black beside it."""
    if mask is None:
        return picture
    inside = mask.float()[None, None]
    thick = 1 + max(mask.shape) // 400
    grown = F.max_pool2d(inside, 2 * thick + 1, 1, thick)[0, 0] > 0
    shrunk = -F.max_pool2d(F.pad(-inside, (thick,) * 4), 2 * thick + 1, 1)[0, 0] > 0
    drawn = torch.where(grown & ~mask, 0.0, picture)
    return torch.where(mask & ~shrunk, 1.0, drawn)


def mean_inside(shares: Sequence[float | None]) -> float | None:
    """Over the images that have one."""
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else None
