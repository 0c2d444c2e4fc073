"""What all axioms share: a probe that attributes, and a finding that says how far the axiom is from holding."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from axiograd.attribution.results import relative_to
from axiograd.axioms.network import Network
from axiograd.axioms.subject import Subject


@dataclass(frozen=True, eq=False)
class Probe:
    """An attribution method, and the baselines against which it attributes.

    Without baselines, ``method(model)`` attributes against zero. With baselines, ``method(model, baselines)``
    attributes against their mean, as Expected Gradients do.
    """

    method: Callable[..., Any]
    baselines: Tensor | None = None

    def attribute(self, network: Network, x: Tensor, *, scale: float = 1.0) -> Tensor:
        """A(F, x, x′), with the baselines multiplied by ``scale``."""
        found: Tensor = self.make(network.module(), scale=scale).attribute(x)
        return found.detach().flatten(1)

    def make(self, model: nn.Module, *, scale: float = 1.0) -> Any:
        """The method for a model."""
        return self.method(model) if self.baselines is None else self.method(model, scale * self.baselines)

    def difference(self, network: Network, x: Tensor) -> Tensor:
        """F(x) − F(x′) per sample and baseline, ``[batch, baselines]``."""
        baselines = torch.zeros_like(x[:1]) if self.baselines is None else self.baselines
        return network(x).unsqueeze(1) - network(baselines)

    def symmetric(self, i: int, j: int) -> Probe:
        """The same with baselines in which features i and j can be exchanged."""
        if self.baselines is None:
            return self
        swapped = self.baselines.flatten(1).clone()
        swapped[:, [i, j]] = swapped[:, [j, i]]
        return Probe(self.method, torch.cat([self.baselines, swapped.reshape(self.baselines.shape)]))


@dataclass(frozen=True, eq=False)
class Finding:
    """One measured violation, relative to the output's scale, and the sample where it is largest."""

    violation: float
    scale: float
    model: nn.Module
    input: Tensor
    attribution: Tensor
    detail: str
    extra: dict[str, Any] = field(default_factory=dict)


class Axiom(ABC):
    """A statement about attribution methods that can be measured on a subject."""

    name: ClassVar[str]
    statement: ClassVar[str]

    @abstractmethod
    def measure(self, probe: Probe, subject: Subject, generator: torch.Generator) -> Iterator[Finding]:
        """The violations on one subject."""


def finding(
    network: Network, x: Tensor, attribution: Tensor, violation: Tensor, difference: Tensor, detail: str, **extra: Any
) -> Finding:
    """Report the worst sample; ``violation`` is absolute, and relative to the largest |F(x) − F(x′)|."""
    scale = float(difference.abs().max())
    worst = int(violation.argmax())
    relative = float(relative_to(violation[worst].double(), scale))
    return Finding(relative, scale, network.module(), x[worst : worst + 1], attribution[worst], detail, extra)
