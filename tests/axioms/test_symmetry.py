"""On a kink no gradient method preserves symmetry: why the search stays off kinks."""

import torch

from axiograd import InputXGradient, IntegratedGradients, XGradient
from axiograd.axioms.base import Probe
from axiograd.axioms.network import DenseNetwork

#: max(x1, x2) = x2 + ReLU(x1 - x2), with x2 = ReLU(x2) - ReLU(-x2)
FIRST = torch.tensor([[1.0, -1.0], [0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
MAXIMUM = DenseNetwork(((FIRST, None), (torch.tensor([[1.0, 1.0, -1.0]], dtype=torch.float64), None)))


def test_the_maximum_at_equal_values():
    x = torch.tensor([[2.0, 2.0], [1.0, 2.0]], dtype=torch.float64)
    assert torch.equal(MAXIMUM(x), x.max(1).values)
    for method in (IntegratedGradients, InputXGradient, lambda model: XGradient(model, degree=1.0)):
        attribution = Probe(method).attribute(MAXIMUM, x)
        assert torch.allclose(attribution, torch.tensor([[0.0, 2.0], [0.0, 2.0]], dtype=torch.float64))
