"""How much of each sample's attribution lies inside a mask of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from axiograd.metrics import energy_inside
from axiograd.scale.summaries import Columns, Kind, Regions, Summary

_NAMES = ("share_mask", "sum_mask", "energy_mask", "area_mask")


@dataclass(frozen=True)
class InMasks(Summary):
    """What lies inside each sample's own mask; the first two columns are those of a region.

    The share of all magnitude Σ_inside |a| / Σ |a|, the signed sum, the share of what is positive, and the share of the
    pixels. A mask ``[height, width]`` is true inside. Rows without one, or without a pixel of it in what the model
    saw, have nulls.

    >>> import torch
    >>> left = torch.tensor([[True, False], [True, False]])
    >>> found = InMasks()(torch.tensor([[[[3.0, 1.0], [-4.0, 0.0]]]]), [left])
    >>> [float(found[name][0]) for name in ("share_mask", "sum_mask", "energy_mask", "area_mask")]
    [0.875, -1.0, 0.75, 0.5]
    """

    @property
    def columns(self) -> Mapping[str, Kind]:
        return dict.fromkeys(_NAMES, "float32")

    def __call__(self, attributions: Tensor, masks: Sequence[Tensor | None] = ()) -> Columns:
        found: dict[str, list[Any]] = {name: [None] * len(attributions) for name in _NAMES}
        for place, mask in enumerate(masks):
            if mask is None or not bool(mask.any()):
                continue
            one = attributions[place : place + 1].detach()
            inside = Regions({"mask": mask})(one)
            inside |= {"energy_mask": energy_inside(one, mask.unsqueeze(0)).numpy()}
            for name, values in (inside | {"area_mask": mask.double().mean().reshape(1).numpy()}).items():
                found[name][place] = float(values[0])
        return {name: np.array(values, dtype=object) for name, values in found.items()}
