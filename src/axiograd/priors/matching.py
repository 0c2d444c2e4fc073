"""Attributions should look like given maps, a teacher's or a person's."""

from typing import Literal

import torch
from torch import Tensor

from axiograd.errors import ConfigurationError
from axiograd.priors._masks import Maps, align
from axiograd.priors._ops import rescaled, rows
from axiograd.priors.base import Prior

_DISTANCES = ("l2", "l1", "cosine")


class Matching(Prior):
    """The distance of the attributions to given maps t, mean over samples: Ω = (1/m)·Σₛ d(aₛ, tₛ).

    "l2": d = Σᵢ (aᵢ − tᵢ)²; "l1": d = Σᵢ |aᵢ − tᵢ|; "cosine": d = 1 − aᵀt / (‖a‖·‖t‖), which compares
    directions only and is 1 for a map of zeros. `teacher` [batch, *features] is taken as it is, without
    gradient; None in a list of maps, or False in `has_teacher`, adds 0.

    Zagoruyko, Komodakis: Paying more attention to attention, 2017 (on activation and gradient maps).

    >>> import torch
    >>> Matching()(torch.tensor([[1.0, 2.0]]), teacher=torch.tensor([[1.0, 0.0]]))
    tensor(4.)
    >>> Matching("cosine")(torch.tensor([[1.0, 2.0]]), teacher=torch.tensor([[3.0, 6.0]])).round(decimals=4)
    tensor(0.)
    """

    def __init__(self, distance: Literal["l2", "l1", "cosine"] = "l2") -> None:
        super().__init__()
        if distance not in _DISTANCES:
            raise ConfigurationError(f"Matching's distance must be one of {_DISTANCES}, got {distance!r}.")
        self.distance = distance

    def forward(self, attributions: Tensor, *, teacher: Maps, has_teacher: Tensor | None = None) -> Tensor:
        maps, has = align(teacher, has_teacher, attributions, "teacher")
        maps = maps.detach().expand_as(attributions)
        if self.distance == "cosine":
            distance = 1 - (_directions(attributions) * _directions(maps)).sum(1)
        elif self.distance == "l1":
            distance = rows(attributions - maps).abs().sum(1)
        else:
            distance = rows(attributions - maps).square().sum(1)
        return torch.where(has, distance, torch.zeros_like(distance)).mean()


def _directions(maps: Tensor) -> Tensor:
    scaled = rows(rescaled(maps))
    squared = scaled.square().sum(1, keepdim=True)
    return scaled / torch.where(squared > 0, squared, torch.ones_like(squared)).sqrt()
