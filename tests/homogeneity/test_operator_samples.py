"""PyTorch's own operator samples: nothing that is certified is refuted by brute force.

`operator_samples.json` has what the last run over many operators found, and how far it came.
"""

import pytest
import torch

from axiograd.homogeneity import certify
from support.certificates.samples import Count, examine, operators

#: One of each kind of trouble that was found: overlapping writes, tables, halves of matrices, draws, casts, norms,
#: a radius below zero, outputs that cancel.
FEW = (
    *("nn.functional.max_unpool2d", "nn.functional.embedding", "linalg.eigvalsh", "as_strided_scatter", "xlogy"),
    *("linspace.tensor_overload", "scatter", "nn.functional.pairwise_distance", "linalg.solve_triangular"),
    *("polar", "clamp_max"),
)


@pytest.mark.parametrize("name", FEW)
def test_a_few_operators(name):
    count = Count()
    examine(name, operators()[name], count, most=3)
    assert count.calls > 0
    assert not count.refuted
    assert not count.withdrawn


@pytest.mark.parametrize("name", ["half", "bfloat16", "float", "cfloat"])
def test_casts_are_tested_as_all_operators_are(name):
    """They round, but scaling by powers of four is exact, and slopes are taken over steps above the rounding."""
    count = Count()
    examine(name, operators()[name], count, most=1)
    assert count.certified == count.tested == 1
    assert not count.refuted


def test_a_wrong_cast_would_be_noticed(monkeypatch):
    """A cast whose backward is not its derivative, or that rounds to integers on its way, is refuted."""
    operator = operators()["half"]
    for wrong in (lambda x: (x + x.detach()).half(), lambda x: x.round().half()):
        monkeypatch.setattr(
            "support.certificates.samples.certify", lambda *_: certify(lambda x: x.half(), torch.ones(2))
        )
        count = Count()
        examine("half", _Wrong(operator, wrong), count, most=1)
        assert count.refuted


class _Wrong:
    """The samples of one operator for another function."""

    def __init__(self, operator, function):
        self.name, self.function, self.sample_inputs = operator.name, function, operator.sample_inputs

    def __call__(self, x, *_, **__):
        return self.function(x)


@pytest.mark.long
def test_every_operator():
    count = Count()
    for name, operator in operators().items():
        examine(name, operator, count, most=5)
    assert count.certified > 800
    assert not count.refuted
    assert not count.withdrawn
