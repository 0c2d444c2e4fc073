"""What a layer's weights see and make at sampled places, as the rows of a regression."""

import itertools
import math

import torch
from torch import Tensor, nn

from axiograd.homogeneity.conversion.calibrated.layers import AffineOfDegreeOne, scale_channels

#: Stride, padding, dilation and groups where a call does not name them.
_DEFAULTS = (1, 0, 1, 1)


def can_fit(layer: AffineOfDegreeOne) -> bool:
    """Padding by name has no numbers, and a transposed convolution's patches are of its output."""
    if layer.product is scale_channels or "transpose" in str(layer.product):
        return False
    return layer.channels == -1 or str(layer.product).endswith(".default")


def places(layer: AffineOfDegreeOne, y: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Sampled places of each image, by number."""
    n = math.prod(size for d, size in enumerate(y.shape) if d not in {0, layer.channels % y.dim()})
    chosen = [torch.randperm(n, generator=generator)[: min(count, n)] for _ in range(len(y))]
    return torch.stack(chosen).to(y.device)


def gather(layer: AffineOfDegreeOne, y: Tensor, at: Tensor) -> Tensor:
    """The outputs at sampled places, [images · places, channels]."""
    flat = y.movedim(layer.channels, -1).flatten(1, -2) if y.dim() > 2 else y[:, None]  # noqa: PLR2004
    return flat.gather(1, at[..., None].expand(-1, -1, flat.shape[-1])).flatten(0, 1)


def patches(layer: AffineOfDegreeOne, h: Tensor, y: Tensor, at: Tensor) -> Tensor:
    """What the weights see at sampled places, [images · places, groups · weights of an output]."""
    if layer.channels == -1:
        return gather(layer, h, at)
    stride, padding, dilation, _ = options(layer)
    padded = nn.functional.pad(h, [p for size in reversed(padding) for p in (size, size)]).movedim(1, -1)
    where = torch.unravel_index(at, y.shape[2:])
    image = torch.arange(len(h), device=h.device)[:, None].expand_as(at)
    seen = []
    for offset in itertools.product(*(range(k) for k in layer.weight.shape[2:])):
        index = [p * s + o * d for p, s, o, d in zip(where, stride, offset, dilation, strict=True)]
        seen.append(padded[(image, *index)])
    return torch.stack(seen, -1).flatten(2).flatten(0, 1)


def grouped(layer: AffineOfDegreeOne, rows: Tensor) -> Tensor:
    """[rows, groups · n] → [groups, rows, n]."""
    groups = options(layer)[3] if layer.channels == 1 else 1
    return rows.reshape(len(rows), groups, -1).transpose(0, 1)


def options(layer: AffineOfDegreeOne) -> tuple[list[int], list[int], list[int], int]:
    """Stride, padding, dilation, groups of a convolution."""
    n = layer.weight.dim() - 2
    given = (*layer.options, *_DEFAULTS[len(layer.options) :])
    stride, padding, dilation = (
        [v] * n if isinstance(v, int) else list(v) * (n if len(v) == 1 else 1) for v in given[:3]
    )
    return stride, padding, dilation, int(given[3])
