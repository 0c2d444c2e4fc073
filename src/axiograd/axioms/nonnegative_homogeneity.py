"""Nonnegative homogeneity, the axiom of the paper's Definition 3.6."""

from collections.abc import Iterator

import torch

from axiograd.axioms.base import Axiom, Finding, Probe, finding
from axiograd.axioms.subject import Subject

_ALPHAS = (0.0, 0.4, 2.5)


class NonnegativeHomogeneity(Axiom):
    """A(F, αx, αx′) = α · A(F, x, x′) for all α ≥ 0. The violation is divided by α where α > 1."""

    name = "Nonnegative homogeneity"
    statement = "attributions scale with the input and the baseline"

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
