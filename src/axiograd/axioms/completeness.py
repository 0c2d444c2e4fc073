"""Completeness."""

from collections.abc import Iterator

import torch

from axiograd.axioms.base import Axiom, Finding, Probe, finding
from axiograd.axioms.subject import Subject


class Completeness(Axiom):
    """Σᵢ Aᵢ = F(x) − F(x′). The violation is the gap; for several baselines F(x′) is the mean over them."""

    name = "Completeness"
    statement = "attributions add up to the change of the output"

    def measure(self, probe: Probe, subject: Subject, generator: torch.Generator) -> Iterator[Finding]:  # noqa: ARG002
        x, network = subject.inputs, subject.network
        difference = probe.difference(network, x)
        attribution = probe.attribute(network, x)
        gap = (attribution.sum(1) - difference.mean(1)).abs()
        yield finding(
            network, x, attribution, gap, difference, "attributions do not add up to the change of the output"
        )
