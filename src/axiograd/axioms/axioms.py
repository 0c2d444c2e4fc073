"""The axioms of the paper's Table 1, and nonnegative homogeneity (its Definition 3.6), as checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from axiograd.axioms.networks import Network, Subject, reordered

#: An attribution below this share of the change that it should explain is zero, whatever rounding left of it.
_ZERO = 1e-9
#: Changes of the output below this many rounding errors are none.
_ROUNDING = 64
#: Features that are asked about, one by one: which must count, and which must not.
_THAT_COUNT, _THAT_DO_NOT = 4, 2
#: Each input is attributed this often: a method that draws at random may miss a feature only now and then.
_DRAWS = 4
#: Of F₁ and F₂ in a sum of both.
_WEIGHTS = ((1.0, 1.0), (1.7, -0.6))
_ALPHAS = (0.0, 0.4, 2.5)


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
        # A method seeds its own generator from the global state: one that is made later is to draw other numbers.
        torch.rand(())
        return self.method(model) if self.baselines is None else self.method(model, scale * self.baselines)

    def difference(self, network: Network, x: Tensor) -> Tensor:
        """F(x) − F(x′) per sample and baseline, ``[batch, baselines]``."""
        baselines = torch.zeros_like(x[:1]) if self.baselines is None else self.baselines
        return network(x).unsqueeze(1) - network(baselines)

    def symmetric(self, order: Sequence[int]) -> Probe:
        """The same with baselines that do not change as a set when features are reordered so."""
        if self.baselines is None:
            return self
        return Probe(self.method, torch.cat([self.baselines, reordered(self.baselines, order)]))


@dataclass(frozen=True, eq=False)
class Finding:
    """One measured violation, relative to the output's scale, and the sample where it is largest."""

    violation: float
    scale: float  # the largest |F(x) − F(x′)|
    model: nn.Module  # the network that was attributed
    input: Tensor  # the sample where the violation is largest, as a batch of one
    attribution: Tensor  # of that sample
    detail: str
    extra: dict[str, Any] = field(default_factory=dict)  # what else the axiom is about: a feature, a factor, a network


class Axiom(ABC):
    """A statement about attribution methods that can be measured on a subject."""

    name: ClassVar[str]

    @abstractmethod
    def measure(self, probe: Probe, subject: Subject, generator: torch.Generator) -> Iterator[Finding]:
        """The violations on one subject."""


def finding(
    network: Network, x: Tensor, attribution: Tensor, violation: Tensor, difference: Tensor, detail: str, **extra: Any
) -> Finding:
    """Report the worst sample; ``violation`` is absolute, and relative to the largest |F(x) − F(x′)|."""
    scale = float(difference.abs().max())
    worst = int(violation.argmax())
    largest = float(violation[worst])
    # Where the output does not change at all, any violation is infinitely too much.
    relative = largest / scale if scale > 0 else 0.0 if largest == 0 else torch.inf
    return Finding(relative, scale, network.module(), x[worst : worst + 1], attribution[worst], detail, extra)


class SensitivityA(Axiom):
    """x and x′ differ in feature i alone and F(x) ≠ F(x′)  ⟹  Aᵢ ≠ 0.

    All features but i are frozen at zero, in the input and in the network; the violation is the change
    |F(x) − F(x′)| that is left without any attribution.
    """

    name = "Sensitivity (a)"

    def measure(self, probe: Probe, subject: Subject, generator: torch.Generator) -> Iterator[Finding]:
        for i in subject.features(generator, _THAT_COUNT):
            only = subject.only(i)
            network = subject.network.masked(only)
            x = torch.cat([torch.where(only, subject.inputs, 0.0)] * _DRAWS)
            difference = probe.difference(network, x)
            attribution = probe.attribute(network, x)
            change = difference.mean(1).abs()
            # Rows of different batches may be added up in different orders: what that leaves is not a change.
            change = torch.where(change <= _ROUNDING * torch.finfo(x.dtype).eps * network(x).abs().max(), 0.0, change)
            unattributed = torch.where(attribution[:, i].abs() <= _ZERO * change, change, 0.0)
            detail = f"feature {i} alone changes the output, and its attribution is zero"
            yield finding(network, x, attribution, unattributed, difference, detail, feature=i)


class SensitivityB(Axiom):
    """F does not depend on feature i  ⟹  Aᵢ = 0. The violation is |Aᵢ| for a feature that the network ignores."""

    name = "Sensitivity (b)"

    def measure(self, probe: Probe, subject: Subject, generator: torch.Generator) -> Iterator[Finding]:
        for i in subject.features(generator, _THAT_DO_NOT):
            network = subject.network.masked(~subject.only(i))
            attribution = probe.attribute(network, subject.inputs)
            # The scale of the network as it was: without feature i nothing may be left of the output.
            difference = probe.difference(subject.network, subject.inputs)
            detail = f"the output does not depend on feature {i}, which gets an attribution"
            yield finding(network, subject.inputs, attribution, attribution[:, i].abs(), difference, detail, feature=i)


class ImplementationInvariance(Axiom):
    """F = G as functions  ⟹  A(F, x, x′) = A(G, x, x′). The violation is the largest difference of a component.

    A network that is attributed twice is the simplest pair: a method that draws at random gives two answers.
    """

    name = "Implementation invariance"

    def measure(self, probe: Probe, subject: Subject, generator: torch.Generator) -> Iterator[Finding]:
        x, network = subject.inputs, subject.network
        difference = probe.difference(network, x)
        attribution = probe.attribute(network, x)
        for name, other in network.equivalents(generator):
            found = probe.attribute(other, x)
            violation = (found - attribution).abs().amax(1)
            detail = f"the same function, implemented in another way ({name}), gets another attribution"
            yield finding(
                network, x, attribution, violation, difference, detail, other=other.module(), other_attribution=found
            )


class CompletenessAxiom(Axiom):
    """Σᵢ Aᵢ = F(x) − F(x′). The violation is the gap; for several baselines F(x′) is the mean over them."""

    name = "Completeness"

    def measure(self, probe: Probe, subject: Subject, generator: torch.Generator) -> Iterator[Finding]:  # noqa: ARG002
        x, network = subject.inputs, subject.network
        difference = probe.difference(network, x)
        attribution = probe.attribute(network, x)
        gap = (attribution.sum(1) - difference.mean(1)).abs()
        yield finding(
            network, x, attribution, gap, difference, "attributions do not add up to the change of the output"
        )


class Linearity(Axiom):
    """A(a·F₁ + b·F₂) = a·A(F₁) + b·A(F₂). F₂ is F₁ with its features in reverse order."""

    name = "Linearity"

    def measure(self, probe: Probe, subject: Subject, generator: torch.Generator) -> Iterator[Finding]:  # noqa: ARG002
        x, first = subject.inputs, subject.network
        second = first.permuted(range(subject.n_features)[::-1])
        of_first, of_second = (probe.attribute(network, x) for network in (first, second))
        change_of_first, change_of_second = (probe.difference(network, x).abs() for network in (first, second))
        for a, b in _WEIGHTS:
            network = first.combined(a, second, b)
            attribution = probe.attribute(network, x)
            violation = (attribution - (a * of_first + b * of_second)).abs().amax(1)
            detail = f"{a:g} · F1 + {b:g} · F2 does not get the weighted sum of the attributions of F1 and F2"
            # The scale of the sum as if nothing cancelled in it.
            difference = abs(a) * change_of_first + abs(b) * change_of_second
            parts = {"first": first.module(), "second": second.module(), "weights": (a, b)}
            yield finding(network, x, attribution, violation, difference, detail, **parts)


class SymmetryPreservation(Axiom):
    """F(…xᵢ…xⱼ…) = F(…xⱼ…xᵢ…), xᵢ = xⱼ and x′ᵢ = x′ⱼ  ⟹  Aᵢ = Aⱼ, on networks symmetrised as F(x) + F(swapped x).

    Holds where F has a gradient. On a kink, autograd takes the slope of one side: max(x₁, x₂), written as
    x₂ + ReLU(x₁ − x₂), is symmetric, and at x₁ = x₂ every gradient method gives all to x₂. The search stays off kinks.
    """

    name = "Symmetry preservation"

    def measure(self, probe: Probe, subject: Subject, generator: torch.Generator) -> Iterator[Finding]:
        chosen = subject.features(generator, 2)
        if len(chosen) < 2:  # noqa: PLR2004  # a pair
            return
        i, j = chosen
        swapped, equal = list(range(subject.n_features)), list(range(subject.n_features))
        swapped[i], swapped[j], equal[j] = j, i, i
        network = subject.network.combined(1.0, subject.network.permuted(swapped), 1.0)
        x = reordered(subject.inputs, equal)
        symmetric = probe.symmetric(swapped)
        attribution = symmetric.attribute(network, x)
        violation = (attribution[:, i] - attribution[:, j]).abs()
        detail = f"features {i} and {j} can be exchanged and have equal values, but unequal attributions"
        # The inputs as they were give the scale too: made equal, features may happen to lie where the output is flat.
        difference = symmetric.difference(network, torch.cat([x, subject.inputs]))
        yield finding(network, x, attribution, violation, difference, detail, features=(i, j))


class NonnegativeHomogeneity(Axiom):
    """A(F, αx, αx′) = α · A(F, x, x′) for all α ≥ 0. The violation is divided by α where α > 1."""

    name = "Nonnegative homogeneity"

    def measure(self, probe: Probe, subject: Subject, generator: torch.Generator) -> Iterator[Finding]:  # noqa: ARG002
        x, network = subject.inputs, subject.network
        difference = probe.difference(network, x)
        attribution = probe.attribute(network, x)
        for alpha in _ALPHAS:
            scaled = probe.attribute(network, alpha * x, scale=alpha)
            violation = (scaled - alpha * attribution).abs().amax(1) / max(1.0, alpha)
            detail = f"the attribution at {alpha:g} · x is not {alpha:g} times that at x"
            yield finding(
                network, x, attribution, violation, difference, detail, alpha=alpha, scaled_attribution=scaled
            )


#: In the order of the paper's Table 1; the last one is its Definition 3.6.
AXIOMS: tuple[Axiom, ...] = (
    SensitivityA(),
    SensitivityB(),
    ImplementationInvariance(),
    CompletenessAxiom(),
    Linearity(),
    SymmetryPreservation(),
    NonnegativeHomogeneity(),
)
