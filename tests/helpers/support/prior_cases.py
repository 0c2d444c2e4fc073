"""One case for every prior, and more for those with several ways to be used."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from axiograd.priors import (
    L1,
    Energy,
    Gini,
    GraphSmoothness,
    Groups,
    LowFrequency,
    Matching,
    RightReasons,
    Shapley,
    Smoothness,
)


@dataclass(frozen=True)
class Case:
    """A prior, and its arguments for attributions of any image shape [batch, 1, height, width]."""

    prior: Any
    arguments: Any = field(default=lambda a: {})


def graph(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.float64) - torch.eye(n, dtype=torch.float64)


def shapley(a: Tensor) -> dict[str, Any]:
    """Every second feature of given inputs, of which the score is no sum."""
    inputs = torch.linspace(-1, 2, a[0].numel(), dtype=torch.float64).reshape(a[:1].shape).expand(a.shape)
    subset = (torch.arange(a[0].numel()) % 2).reshape(a[:1].shape).expand(a.shape)
    return {"inputs": inputs, "score": lambda x: x.flatten(1).sum(1).square(), "subset": subset}


CASES = {
    "gini": Case(lambda n: Gini()),
    "gini-paper": Case(lambda n: Gini(normalisation="paper")),
    "smoothness": Case(lambda n: Smoothness()),
    "low-frequency-share": Case(lambda n: LowFrequency(0.2)),
    "low-frequency-energy": Case(lambda n: LowFrequency(0.2, measure="energy")),
    "graph": Case(lambda n: GraphSmoothness(graph(n))),
    "graph-sparse": Case(lambda n: GraphSmoothness(graph(n).to_sparse())),
    "graph-laplacian": Case(lambda n: GraphSmoothness(laplacian=graph(n), absolute=False)),
    "right-reasons": Case(lambda n: RightReasons(), lambda a: {"mask": a >= 0}),
    "right-reasons-none": Case(lambda n: RightReasons(), lambda a: {"mask": None}),
    "energy-boxes": Case(lambda n: Energy(), lambda a: {"boxes": torch.tensor([[0, 0, 1, 2]]).repeat(len(a), 1)}),
    "energy-inside": Case(lambda n: Energy(sum_channels=False), lambda a: {"inside": torch.ones_like(a[:, 0])}),
    "l1": Case(lambda n: L1()),
    "matching-l2": Case(lambda n: Matching(), lambda a: {"teacher": torch.ones_like(a)}),
    "matching-l1": Case(lambda n: Matching("l1"), lambda a: {"teacher": torch.ones_like(a) / 3}),
    "matching-cosine": Case(lambda n: Matching("cosine"), lambda a: {"teacher": torch.ones_like(a)}),
    "matching-cosine-zero": Case(lambda n: Matching("cosine"), lambda a: {"teacher": torch.zeros_like(a)}),
    "groups": Case(lambda n: Groups([[0], list(range(n))])),
    "groups-l1": Case(lambda n: Groups([list(range(n))], power=1)),
    "shapley": Case(lambda n: Shapley(), shapley),
    "sum": Case(lambda n: 0.5 * Gini() + L1() + 2 * RightReasons(), lambda a: {"mask": a >= 0}),
}
