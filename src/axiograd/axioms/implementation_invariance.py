"""Implementation invariance."""

from collections.abc import Iterator

import torch

from axiograd.axioms.base import Axiom, Finding, Probe, finding
from axiograd.axioms.subject import Subject


class ImplementationInvariance(Axiom):
    """F = G as functions  ⟹  A(F, x, x′) = A(G, x, x′). The violation is the largest difference of a component.

    A network that is attributed twice is the simplest pair: a method that draws at random gives two answers.
    """

    name = "Implementation invariance"
    statement = "networks that compute the same function get the same attributions"

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
