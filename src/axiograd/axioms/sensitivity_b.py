"""Sensitivity (b)."""

from collections.abc import Iterator

import torch

from axiograd.axioms.base import Axiom, Finding, Probe, finding
from axiograd.axioms.subject import Subject

_N_FEATURES = 2


class SensitivityB(Axiom):
    """F does not depend on feature i  ⟹  Aᵢ = 0. The violation is |Aᵢ| for a feature that the network ignores."""

    name = "Sensitivity (b)"
    statement = "a feature that the function does not depend on gets no attribution"

    def measure(self, probe: Probe, subject: Subject, generator: torch.Generator) -> Iterator[Finding]:
        n = subject.inputs.flatten(1).shape[1]
        for i in subject.features(generator, _N_FEATURES):
            network = subject.network.kept([j for j in range(n) if j != i])
            attribution = probe.attribute(network, subject.inputs)
            # The scale of the network as it was: without feature i nothing may be left of the output.
            difference = probe.difference(subject.network, subject.inputs)
            detail = f"the output does not depend on feature {i}, which gets an attribution"
            yield finding(network, subject.inputs, attribution, attribution[:, i].abs(), difference, detail, feature=i)
