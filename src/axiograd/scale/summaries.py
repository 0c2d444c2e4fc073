"""What is kept of an attribution: a few numbers instead of one per pixel.

A photo's attributions are 602 KB. A summary takes signed maps ``[samples, height, width]`` (channels summed; a table's
row is a map of height 1) and gives columns with a row per sample.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from axiograd._boxes import covered_pixels
from axiograd.errors import ConfigurationError, InputError
from axiograd.metrics import energy_inside

#: Bytes that the windows of one sample may take by default; with the other columns a row stays below 4 KB.
BUDGET = 3600
_FLOAT = 4

#: The kinds of columns: a number, or a list of numbers.
Kind = Literal["float32", "list<float32>", "list<int32>"]
Columns = dict[str, NDArray[Any]]


def as_maps(attributions: Tensor) -> Tensor:
    """Signed attributions per place ``[samples, height, width]`` in float64: channels are summed, rows have height 1.

    >>> as_maps(torch.ones(2, 3, 4, 5)).shape, as_maps(torch.ones(2, 7)).shape
    (torch.Size([2, 4, 5]), torch.Size([2, 1, 7]))
    """
    a = attributions.detach().double()
    if a.dim() > 2:  # noqa: PLR2004  # samples and features
        a = a.sum(1)
    return a if a.dim() == 3 else a.reshape(len(a), 1, -1)  # noqa: PLR2004  # samples, height, width


def gini(maps: Tensor) -> Tensor:
    """How unequally the magnitude is spread over the places of each map: 0 evenly, towards 1 on one place.

    >>> gini(torch.tensor([[[0.0, 0.0, 0.0, 1.0]], [[1.0, 1.0, 1.0, 1.0]]], dtype=torch.float64))
    tensor([0.7500, 0.0000], dtype=torch.float64)
    """
    ordered = torch.from_numpy(np.sort(maps.flatten(1).abs().numpy(), axis=1))  # eight times as fast as torch's
    n = ordered.shape[1]
    whole = ordered.sum(1)
    weights = 2 * torch.arange(1, n + 1, dtype=ordered.dtype) - n - 1
    return torch.where(whole > 0, (ordered * weights).sum(1) / (n * torch.where(whole > 0, whole, 1.0)), 0.0)


class Summary(ABC):
    """From the attributions of samples to columns of a table."""

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, Kind]:
        """The columns' names and kinds."""

    @abstractmethod
    def __call__(self, attributions: Tensor) -> Columns:
        """The columns for a batch."""


@dataclass(frozen=True)
class Windows(Summary):
    """Sums over windows of ``size`` × ``size`` pixels: they add up to what the attributions add up to.

    Without a size it is the smallest with which a sample takes at most 3,600 bytes: 8 for photos of 224 or 227 pixels,
    1 for rows of up to 900 features. ``grid`` has the number of windows, down and across.

    >>> found = Windows(2)(torch.ones(1, 3, 4, 5))
    >>> found["windows"], found["grid"]
    (array([[12., 12.,  6., 12., 12.,  6.]], dtype=float32), array([[2, 3]], dtype=int32))
    """

    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise ConfigurationError(f"Windows(size={self.size}): a window has at least one pixel.")

    @property
    def columns(self) -> Mapping[str, Kind]:
        return {"windows": "list<float32>", "grid": "list<int32>"}

    def size_of(self, height: int, width: int) -> int:
        """The side of a window for maps of this shape."""
        if self.size is not None:
            return min(self.size, max(height, width))
        size = 1
        while math.ceil(height / size) * math.ceil(width / size) * _FLOAT > BUDGET:
            size += 1
        return size

    def __call__(self, attributions: Tensor) -> Columns:
        maps = as_maps(attributions)
        height, width = maps.shape[1:]
        size = self.size_of(height, width)
        tall = 1 if height == 1 else size
        padded = F.pad(maps, (0, -width % size, 0, -height % tall))
        sums = padded.unflatten(1, (-1, tall)).unflatten(3, (-1, size)).sum((2, 4))
        grid = np.tile(np.array(sums.shape[1:], dtype=np.int32), (len(maps), 1))
        return {"windows": sums.flatten(1).float().numpy(), "grid": grid}


@dataclass(frozen=True)
class TopK(Summary):
    """The k places of largest magnitude, and the sum of the rest, so that everything adds up.

    >>> found = TopK(1)(torch.tensor([[1.0, -5.0, 2.0]]))
    >>> found["top_places"], found["top_values"], found["rest"]
    (array([[1]], dtype=int32), array([[-5.]], dtype=float32), array([3.], dtype=float32))
    """

    k: int = 400

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigurationError(f"TopK(k={self.k}): keep at least one place.")

    @property
    def columns(self) -> Mapping[str, Kind]:
        return {"top_places": "list<int32>", "top_values": "list<float32>", "rest": "float32"}

    def __call__(self, attributions: Tensor) -> Columns:
        flat = as_maps(attributions).flatten(1)
        places = flat.abs().topk(min(self.k, flat.shape[1]), dim=1).indices
        values = flat.gather(1, places)
        return {
            "top_places": places.int().numpy(),
            "top_values": values.float().numpy(),
            "rest": (flat.sum(1) - values.sum(1)).float().numpy(),
        }


@dataclass(frozen=True)
class PerChannel(Summary):
    """What is positive and what is negative in each channel, summed over all places.

    >>> PerChannel()(torch.tensor([[[[1.0, -2.0]], [[3.0, 4.0]]]]))["positive"]
    array([[1., 7.]], dtype=float32)
    """

    @property
    def columns(self) -> Mapping[str, Kind]:
        return {"positive": "list<float32>", "negative": "list<float32>"}

    def __call__(self, attributions: Tensor) -> Columns:
        a = attributions.detach().double()
        channels = a.flatten(2) if a.dim() > 2 else a.unsqueeze(1)  # noqa: PLR2004  # samples and features
        return {
            "positive": channels.clamp(min=0).sum(2).float().numpy(),
            "negative": channels.clamp(max=0).sum(2).float().numpy(),
        }


@dataclass(frozen=True, eq=False)
class Regions(Summary):
    """Share of all magnitude in each named region, Σ_region |a| / Σ |a|, and the signed sum in it.

    A region is a box ``(x0, y0, x1, y1)`` in pixels, half-open, or a mask ``[height, width]``.

    >>> found = Regions({"left": (0, 0, 1, 2)})(torch.tensor([[[[3.0, 1.0], [-4.0, 0.0]]]]))
    >>> found["share_left"], found["sum_left"]
    (array([0.875], dtype=float32), array([-1.], dtype=float32))
    """

    regions: Mapping[str, Sequence[float] | Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.regions:
            raise ConfigurationError("Regions(): name at least one, Regions({'corner': (0, 0, 32, 32)}).")
        for name, region in self.regions.items():
            if not name.isidentifier():
                raise ConfigurationError(f"Regions: {name!r} becomes a column's name: letters, digits and underscores.")
            if not isinstance(region, Tensor) and len(region) != 4:  # noqa: PLR2004  # corners of a box
                raise ConfigurationError(f"Regions: {name} = {region}: a box is x0, y0, x1, y1; a mask is a tensor.")

    @property
    def columns(self) -> Mapping[str, Kind]:
        return {f"{what}_{name}": "float32" for name in self.regions for what in ("share", "sum")}

    def __call__(self, attributions: Tensor) -> Columns:
        maps = as_maps(attributions)
        whole = maps.abs().sum((1, 2))
        found: Columns = {}
        for name in self.regions:
            inside = maps[:, self._mask(name, *maps.shape[1:])]
            share = torch.where(whole > 0, inside.abs().sum(1) / whole, 0.0)
            found[f"share_{name}"] = share.float().numpy()
            found[f"sum_{name}"] = inside.sum(1).float().numpy()
        return found

    def _mask(self, name: str, height: int, width: int) -> Tensor:
        region = self.regions[name]
        if isinstance(region, Tensor):
            mask = region.bool()
        else:
            mask = covered_pixels(torch.tensor(region, dtype=torch.float64), height, width)
        if mask.shape != (height, width) or not bool(mask.any()):
            raise InputError(
                f"the region {name} covers no pixel of maps of {height} × {width}, or has another shape: "
                f"{tuple(mask.shape)}."
            )
        return mask


@dataclass(frozen=True)
class InMasks(Summary):
    """What lies inside each sample's own mask; the first two columns are those of a region.

    The share of all magnitude Σ_inside |a| / Σ |a|, the signed sum, the share of what is positive, and the share of the
    pixels. A mask ``[height, width]`` is true inside. Rows without one, or without a pixel of it in what the model
    saw, have nulls.

    >>> left = torch.tensor([[True, False], [True, False]])
    >>> found = InMasks()(torch.tensor([[[[3.0, 1.0], [-4.0, 0.0]]]]), [left])
    >>> [float(found[name][0]) for name in ("share_mask", "sum_mask", "energy_mask", "area_mask")]
    [0.875, -1.0, 0.75, 0.5]
    """

    @property
    def columns(self) -> Mapping[str, Kind]:
        return dict.fromkeys(("share_mask", "sum_mask", "energy_mask", "area_mask"), "float32")

    def __call__(self, attributions: Tensor, masks: Sequence[Tensor | None] = ()) -> Columns:
        found: Columns = {name: np.full(len(attributions), None) for name in self.columns}
        for place, mask in enumerate(masks):
            if mask is None or not bool(mask.any()):
                continue
            one = attributions[place : place + 1].detach()
            inside = Regions({"mask": mask})(one)
            inside["energy_mask"] = energy_inside(one, mask.unsqueeze(0)).numpy()
            inside["area_mask"] = mask.double().mean().reshape(1).numpy()
            for name, values in inside.items():
                found[name][place] = float(values[0])
        return found


@dataclass(frozen=True)
class Pixels(Summary):
    """Everything, in float32: one number per pixel and channel."""

    @property
    def columns(self) -> Mapping[str, Kind]:
        return {"attributions": "list<float32>"}

    def __call__(self, attributions: Tensor) -> Columns:
        return {"attributions": attributions.detach().flatten(1).float().numpy()}


#: By the names that the command has for them.
SUMMARIES: Mapping[str, type[Summary]] = {
    "windows": Windows,
    "top-k": TopK,
    "per-channel": PerChannel,
    "pixels": Pixels,
}
