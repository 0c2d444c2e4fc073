"""Which features are kept, and in which order: one sort per sample answers for every fraction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from axiograd.attribution.passes import listed
from axiograd.errors import ConfigurationError, InputError, NotFiniteError

#: How the channels of an image become one value per pixel; "none" treats every channel as features of its own.
Channels: TypeAlias = Literal["mean", "sum", "norm", "none"]

_ROW_DIMS = 2

#: From signed attributions to a key: features are kept from the highest on, and those at minus infinity never.
ORDERS: dict[str, Callable[[Tensor], Tensor]] = {
    "KPM": lambda a: torch.where(a > 0, a, -torch.inf),
    "KNM": lambda a: torch.where(a < 0, -a, -torch.inf),
    "KAM": lambda a: torch.where(a != 0, a.abs(), -torch.inf),
    "RAM": lambda a: torch.where(a != 0, -a.abs(), -torch.inf),
}


def per_feature(attributions: Tensor, inputs: Tensor, channels: Channels) -> Tensor:
    """Signed attributions ``[batch, features]``: pixels for images, columns for rows.

    >>> per_feature(torch.tensor([[[1.0, 2.0], [3.0, -4.0]]]), torch.zeros(1, 2, 2), "mean")
    tensor([[ 2., -1.]])
    """
    if channels not in get_args(Channels):
        raise ConfigurationError(f"channels={channels!r}: expected one of {', '.join(get_args(Channels))}.")
    a = attributions.detach()
    if a.dim() == inputs.dim() - 1 and a.shape == (len(inputs), *inputs.shape[2:]):
        a = a.unsqueeze(1)
    fits = a.shape == inputs.shape or (
        a.dim() == inputs.dim() > _ROW_DIMS and a.shape == (len(inputs), 1, *inputs.shape[2:]) and channels != "none"
    )
    if not fits:
        raise InputError(
            f"attributions of shape {tuple(attributions.shape)} for inputs of shape {tuple(inputs.shape)}: expected "
            "the same shape, or one value per pixel."
        )
    finite = a.flatten(1).isfinite().all(1)
    if not bool(finite.all()):
        raise NotFiniteError(
            f"NaN or Inf in the attributions of sample {listed(~finite)}: they cannot be ranked. Attribute "
            "these samples anew in float64, or leave them out."
        )
    if a.dim() > _ROW_DIMS and channels != "none":
        a = a.mean(1) if channels == "mean" else a.sum(1) if channels == "sum" else a.norm(dim=1)
    return a.flatten(1)


def ranks(key: Tensor) -> tuple[Tensor, Tensor]:
    """Each feature's place in its sample, 0 for the first to keep, and how many features can be kept at all.

    Features with equal keys are in the order of their indices.

    >>> ranks(torch.tensor([[-torch.inf, 2.0, 5.0, 2.0]]))
    (tensor([[3, 1, 0, 2]], dtype=torch.int32), tensor([3]))
    """
    order = key.argsort(dim=1, descending=True, stable=True)
    places = torch.arange(key.shape[1], dtype=torch.int32, device=key.device)
    rank = torch.empty_like(order, dtype=torch.int32)
    rank.scatter_(1, order, places.expand_as(rank))
    return rank, (key > -torch.inf).sum(1)


def kept(fractions: Tensor, n_features: int, n_candidates: Tensor) -> Tensor:
    """How many features each fraction keeps, ``[batch, fractions]``: ⌊fraction · features⌋, at most the candidates.

    >>> kept(torch.tensor([0.1, 0.29, 1.0], dtype=torch.float64), 100, torch.tensor([50]))
    tensor([[10, 29, 50]])
    """
    # 0.29 · 100 is a hair below 29 in binary.
    wanted = (fractions * n_features + 1e-9 * n_features).floor().long()
    return torch.minimum(wanted, n_candidates.unsqueeze(1))
