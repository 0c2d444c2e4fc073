"""Symmetry preservation."""

from collections.abc import Iterator

import torch

from axiograd.axioms.base import Axiom, Finding, Probe, finding
from axiograd.axioms.subject import Subject


class SymmetryPreservation(Axiom):
    """F(…xᵢ…xⱼ…) = F(…xⱼ…xᵢ…), xᵢ = xⱼ and x′ᵢ = x′ⱼ  ⟹  Aᵢ = Aⱼ, on networks symmetrised as F(x) + F(swapped x).

    Holds where F has a gradient. On a kink, autograd takes the slope of one side: max(x₁, x₂), written as
    x₂ + ReLU(x₁ − x₂), is symmetric, and at x₁ = x₂ every gradient method gives all to x₂. The search stays off kinks.
    """

    name = "Symmetry preservation"
    statement = "features that can be exchanged and have equal values get equal attributions"

    def measure(self, probe: Probe, subject: Subject, generator: torch.Generator) -> Iterator[Finding]:
        n = subject.inputs.flatten(1).shape[1]
        chosen = subject.features(generator, 2)
        if len(chosen) < 2:  # noqa: PLR2004  # a pair
            return
        i, j = chosen
        order = list(range(n))
        order[i], order[j] = j, i
        network = subject.network.combined(1.0, subject.network.permuted(order), 1.0)
        x = subject.inputs.flatten(1).clone()
        x[:, j] = x[:, i]
        x = x.reshape(subject.inputs.shape)
        symmetric = probe.symmetric(i, j)
        attribution = symmetric.attribute(network, x)
        violation = (attribution[:, i] - attribution[:, j]).abs()
        detail = f"features {i} and {j} can be exchanged and have equal values, but unequal attributions"
        # The inputs as they were give the scale too: made equal, features may happen to lie where the output is flat.
        difference = symmetric.difference(network, torch.cat([x, subject.inputs]))
        yield finding(network, x, attribution, violation, difference, detail, features=(i, j))
