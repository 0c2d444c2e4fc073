"""Linearity."""

from collections.abc import Iterator

import torch

from axiograd.axioms.base import Axiom, Finding, Probe, finding
from axiograd.axioms.subject import Subject

_WEIGHTS = ((1.0, 1.0), (1.7, -0.6))


class Linearity(Axiom):
    """A(a·F₁ + b·F₂) = a·A(F₁) + b·A(F₂). F₂ is F₁ with its features in reverse order."""

    name = "Linearity"
    statement = "a weighted sum of networks gets the weighted sum of their attributions"

    def measure(self, probe: Probe, subject: Subject, generator: torch.Generator) -> Iterator[Finding]:  # noqa: ARG002
        x, first = subject.inputs, subject.network
        second = first.permuted(list(reversed(range(x.flatten(1).shape[1]))))
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
