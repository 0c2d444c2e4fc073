"""Sensitivity (a)."""

from collections.abc import Iterator

import torch

from axiograd.axioms.base import Axiom, Finding, Probe, finding
from axiograd.axioms.subject import Subject

#: An attribution below this share of the change that it should explain is zero, whatever rounding left of it.
_ZERO = 1e-9

#: Changes of the output below this many rounding errors are none.
_ROUNDING = 64

_N_FEATURES = 4

#: Each input is attributed this often: a method that draws at random may miss a feature only now and then.
_DRAWS = 4


class SensitivityA(Axiom):
    """x and x′ differ in feature i alone and F(x) ≠ F(x′)  ⟹  Aᵢ ≠ 0.

    All features but i are frozen at zero, in the input and in the network; the violation is the change
    |F(x) − F(x′)| that is left without any attribution.
    """

    name = "Sensitivity (a)"
    statement = "a feature that alone changes the output gets a non-zero attribution"

    def measure(self, probe: Probe, subject: Subject, generator: torch.Generator) -> Iterator[Finding]:
        for i in subject.features(generator, _N_FEATURES):
            network = subject.network.kept([i])
            alone = torch.zeros_like(subject.inputs).flatten(1)
            alone[:, i] = subject.inputs.flatten(1)[:, i]
            x = torch.cat([alone.reshape(subject.inputs.shape)] * _DRAWS)
            difference = probe.difference(network, x)
            attribution = probe.attribute(network, x)
            change = difference.mean(1).abs()
            # Rows of different batches may be added up in different orders: what that leaves is not a change.
            change = torch.where(change <= _ROUNDING * torch.finfo(x.dtype).eps * network(x).abs().max(), 0.0, change)
            unattributed = torch.where(attribution[:, i].abs() <= _ZERO * change, change, 0.0)
            detail = f"feature {i} alone changes the output, and its attribution is zero"
            yield finding(network, x, attribution, unattributed, difference, detail, feature=i)
