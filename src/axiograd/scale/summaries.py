"""What is kept of an attribution: a few numbers instead of one per pixel.

A photo's attributions are 602 KB. A summary takes signed maps ``[samples, height, width]`` (channels summed; a table's
row is a map of height 1) and gives columns with a row per sample. What each one loses on real photos is measured by
``python benchmarks/scale.py losses``.
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

#: Bytes that the windows of one sample may take by default; with the other columns a row stays below 4 KB.
BUDGET = 3600
_FLOAT = 4
_IMAGE, _ROWS = 4, 2

#: The kinds of columns: a number, or a list of numbers.
Kind = Literal["float32", "list<float32>", "list<int32>", "list<float16>"]
Columns = dict[str, NDArray[Any]]


def as_maps(attributions: Tensor) -> Tensor:
    """Signed attributions per place ``[samples, height, width]`` in float64: channels are summed, rows have height 1.

    >>> as_maps(torch.ones(2, 3, 4, 5)).shape, as_maps(torch.ones(2, 7)).shape
    (torch.Size([2, 4, 5]), torch.Size([2, 1, 7]))
    """
    a = attributions.detach().double()
    if a.dim() > _ROWS:
        a = a.sum(1)
    return a if a.dim() == _IMAGE - 1 else a.reshape(len(a), 1, -1)


class Summary(ABC):
    """From the attributions of samples to columns of a table."""

    #: Whether the numbers that are kept add up to the sum of the attributions.
    adds_up: bool = False

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, Kind]:
        """The columns' names and kinds."""

    @abstractmethod
    def __call__(self, attributions: Tensor) -> Columns:
        """The columns for a batch."""

    def reconstruct(self, row: Mapping[str, Any], shape: tuple[int, int]) -> NDArray[Any] | None:  # noqa: ARG002
        """The map ``[height, width]`` that a row stands for; None where a summary has no places."""
        return None


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
    adds_up = True

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

    def reconstruct(self, row: Mapping[str, Any], shape: tuple[int, int]) -> NDArray[Any]:
        """Each window's sum, spread evenly over its pixels."""
        height, width = shape
        size = self.size_of(height, width)
        tall = 1 if height == 1 else size
        sums = np.asarray(row["windows"], dtype=np.float64).reshape(tuple(row["grid"]))
        down, across = (
            np.minimum(step, n - step * np.arange(math.ceil(n / step))) for n, step in ((height, tall), (width, size))
        )
        even = sums / np.outer(down, across)
        return np.repeat(np.repeat(even, down, axis=0), across, axis=1)


@dataclass(frozen=True)
class TopK(Summary):
    """The k places of largest magnitude, and the sum of the rest, so that everything adds up.

    >>> found = TopK(1)(torch.tensor([[1.0, -5.0, 2.0]]))
    >>> found["top_places"], found["top_values"], found["rest"]
    (array([[1]], dtype=int32), array([[-5.]], dtype=float32), array([3.], dtype=float32))
    """

    k: int = 400
    adds_up = True

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
        rest = flat.sum(1) - values.sum(1)
        return {
            "top_places": places.int().numpy(),
            "top_values": values.float().numpy(),
            "rest": rest.float().numpy(),
        }

    def reconstruct(self, row: Mapping[str, Any], shape: tuple[int, int]) -> NDArray[Any]:
        """The places that were kept, and the rest spread over all others."""
        n = math.prod(shape)
        places = np.asarray(row["top_places"])
        flat = np.full(n, float(row["rest"]) / max(n - len(places), 1))
        flat[places] = row["top_values"]
        return flat.reshape(shape)


@dataclass(frozen=True)
class PerChannel(Summary):
    """What is positive and what is negative in each channel, summed over all places.

    >>> PerChannel()(torch.tensor([[[[1.0, -2.0]], [[3.0, 4.0]]]]))["positive"]
    array([[1., 7.]], dtype=float32)
    """

    adds_up = True

    @property
    def columns(self) -> Mapping[str, Kind]:
        return {"positive": "list<float32>", "negative": "list<float32>"}

    def __call__(self, attributions: Tensor) -> Columns:
        a = attributions.detach().double()
        channels = a.flatten(2) if a.dim() > _ROWS else a.flatten(1).unsqueeze(1)
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

    def _mask(self, name: str, height: int, width: int) -> Tensor:
        region = self.regions[name]
        if not isinstance(region, Tensor):
            mask = covered_pixels(torch.tensor(region, dtype=torch.float64), height, width)
        else:
            mask = region.bool()
        if mask.shape != (height, width) or not bool(mask.any()):
            raise InputError(
                f"the region {name} covers no pixel of maps of {height} × {width}, or has another shape: "
                f"{tuple(mask.shape)}."
            )
        return mask

    def __call__(self, attributions: Tensor) -> Columns:
        maps = as_maps(attributions)
        whole = maps.abs().sum((1, 2))
        found: Columns = {}
        for name in self.regions:
            mask = self._mask(name, *maps.shape[1:])
            inside = maps[:, mask]
            share = torch.where(whole > 0, inside.abs().sum(1) / whole, 0.0)
            found[f"share_{name}"] = share.float().numpy()
            found[f"sum_{name}"] = inside.sum(1).float().numpy()
        return found


@dataclass(frozen=True)
class Histogram(Summary):
    """How many places have which magnitude and sign: bins of a factor of ``base`` below the largest magnitude.

    ``histogram`` counts, from the most negative to the most positive: ``bins`` bins of negative values, those too
    small to matter, ``bins`` of positive ones; ``largest`` is the largest magnitude.

    >>> Histogram(bins=2, base=10.0)(torch.tensor([[1.0, 0.5, 0.05, 0.001, -1.0]]))["histogram"]
    array([[1, 0, 1, 1, 2]], dtype=int32)
    """

    bins: int = 20
    base: float = 2.0

    def __post_init__(self) -> None:
        if self.bins < 1 or not self.base > 1:
            raise ConfigurationError(f"Histogram(bins={self.bins}, base={self.base}): at least 1, and more than 1.")

    @property
    def columns(self) -> Mapping[str, Kind]:
        return {"histogram": "list<int32>", "largest": "float32"}

    def __call__(self, attributions: Tensor) -> Columns:
        flat = as_maps(attributions).flatten(1)
        largest = flat.abs().amax(1)
        relative = flat / torch.where(largest > 0, largest, 1.0)[:, None]
        edges = torch.tensor([self.base**-i for i in range(self.bins, 0, -1)], dtype=torch.float64)
        # 0 for what is below the smallest edge, then 1 to `bins`.
        level = torch.bucketize(relative.abs(), edges, right=True)
        place = self.bins + torch.where(relative < 0, -level, level)
        counts = torch.zeros(len(flat), 2 * self.bins + 1, dtype=torch.int64)
        counts.scatter_add_(1, place, torch.ones_like(place))
        return {"histogram": counts.int().numpy(), "largest": largest.float().numpy()}


@dataclass(frozen=True)
class LowRank(Summary):
    """The map as ``rank`` outer products, Σ sᵢ·uᵢ·vᵢᵀ, the best such in the sum of squares; directions in float16.

    >>> x = torch.outer(torch.arange(3.0), torch.ones(4)).reshape(1, 1, 3, 4)
    >>> row = {name: column[0] for name, column in LowRank(1)(x).items()}
    >>> bool(np.abs(LowRank(1).reconstruct(row, (3, 4)) - x[0, 0].numpy()).max() < 1e-2)
    True
    """

    rank: int = 4

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ConfigurationError(f"LowRank(rank={self.rank}): at least 1.")

    @property
    def columns(self) -> Mapping[str, Kind]:
        return {"singular": "list<float32>", "left": "list<float16>", "right": "list<float16>"}

    def __call__(self, attributions: Tensor) -> Columns:
        u, s, v = torch.linalg.svd(as_maps(attributions), full_matrices=False)
        r = min(self.rank, s.shape[1])
        return {
            "singular": s[:, :r].float().numpy(),
            "left": u[:, :, :r].half().flatten(1).numpy(),
            "right": v[:, :r].half().flatten(1).numpy(),
        }

    def reconstruct(self, row: Mapping[str, Any], shape: tuple[int, int]) -> NDArray[Any]:
        """The product."""
        s = np.asarray(row["singular"], dtype=np.float64)
        left = np.asarray(row["left"], dtype=np.float64).reshape(shape[0], len(s))
        right = np.asarray(row["right"], dtype=np.float64).reshape(len(s), shape[1])
        return np.asarray((left * s) @ right)


@dataclass(frozen=True)
class Pixels(Summary):
    """Everything, in float32: one number per pixel and channel."""

    adds_up = True

    @property
    def columns(self) -> Mapping[str, Kind]:
        return {"attributions": "list<float32>"}

    def __call__(self, attributions: Tensor) -> Columns:
        return {"attributions": attributions.detach().flatten(1).float().numpy()}

    def reconstruct(self, row: Mapping[str, Any], shape: tuple[int, int]) -> NDArray[Any]:
        """The map."""
        return np.asarray(np.asarray(row["attributions"], dtype=np.float64).reshape(-1, *shape).sum(0))


#: By the names that the command has for them.
SUMMARIES: Mapping[str, type[Summary]] = {
    "windows": Windows,
    "top-k": TopK,
    "per-channel": PerChannel,
    "histogram": Histogram,
    "low-rank": LowRank,
    "pixels": Pixels,
}


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
