"""What axioms are checked on: networks with inputs, generated from a seed or given by the user."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from axiograd.axioms.network import DenseNetwork, Network

#: Every generated network has this many features, so that one set of references fits all.
N_FEATURES = 4

_WIDTHS = ((N_FEATURES, 6, 1), (N_FEATURES, 8, 6, 1), (N_FEATURES, 6, 6, 4, 1))
_BATCH = 6


@dataclass(frozen=True, eq=False)
class Subject:
    """A network and inputs to attribute at."""

    name: str
    network: Network
    inputs: Tensor

    def features(self, generator: torch.Generator, n: int) -> list[int]:
        """Some features, drawn from those that are not zero everywhere."""
        present = self.inputs.flatten(1).abs().sum(0).nonzero().flatten()
        return present[torch.randperm(len(present), generator=generator)[:n]].tolist()


def generated(generator: torch.Generator, *, homogeneous: bool, n_networks: int) -> list[Subject]:
    """Random networks with random inputs; with biases also those that are known to tell methods apart."""
    subjects = []
    for i in range(n_networks):
        widths = _WIDTHS[i % len(_WIDTHS)]
        network = DenseNetwork.random(widths, generator, bias=not homogeneous)
        kind = "without biases" if homogeneous else "with biases"
        name = f"random ReLU network {'-'.join(map(str, widths))} {kind} (number {i})"
        subjects.append(Subject(name, network, _inputs(generator)))
    return subjects if homogeneous else [saturating(generator), two_implementations(generator), *subjects]


def saturating(generator: torch.Generator) -> Subject:
    """The paper's f(x) = 1 − ReLU(1 − x) at x = 2, where it is flat; the other features are dummies."""
    network = DenseNetwork(((_row(-1.0, 0.0, 0.0, 0.0), _row(1.0)[0]), (_row(-1.0), _row(1.0)[0])))
    inputs = _inputs(generator)
    inputs[:, 0] = torch.tensor([2.0, 2.5, 1.5, 3.0, 2.0, 2.0])
    return Subject("f(x) = 1 - ReLU(1 - x)", network, inputs)


def two_implementations(generator: torch.Generator) -> Subject:
    """ReLU(ReLU(x₁) − 1 − ReLU(x₂)) = ReLU(ReLU(x₁ − 1) − ReLU(x₂)), the pair of Sundararajan et al. (2017)."""
    first = torch.zeros(2, N_FEATURES, dtype=torch.float64)
    first[0, 0] = first[1, 1] = 1
    difference, one = _row(1.0, -1.0), _row(1.0)
    zero = torch.zeros(1, dtype=torch.float64)
    outer = DenseNetwork(((first, torch.zeros(2, dtype=torch.float64)), (difference, -one[0]), (one, zero)))
    inner = DenseNetwork(((first, _row(-1.0, 0.0)[0]), (difference, zero), (one, zero)))
    inputs = _inputs(generator)
    inputs[:, 0], inputs[:, 1] = torch.linspace(3, 5, _BATCH), torch.linspace(1, 1.5, _BATCH)
    named = outer.with_twin("the bias moved into the inner ReLU", inner)
    return Subject("ReLU(ReLU(x1) - 1 - ReLU(x2))", named, inputs)


def _row(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


def _inputs(generator: torch.Generator) -> Tensor:
    return 1.5 * torch.randn(_BATCH, N_FEATURES, dtype=torch.float64, generator=generator)
