import pytest
import torch
from torch import nn

from axiograd.homogeneity.conversion.counterparts import GATES, NormalisedGate, NormalisedGLU


def _make(kind: type[nn.Module]) -> nn.Module:
    return kind(dim=-1) if kind in {nn.Softmax, nn.LogSoftmax, nn.Softmin} else kind()


@pytest.mark.parametrize("degree", [0.0, 1.0])
@pytest.mark.parametrize("kind", GATES, ids=lambda kind: kind.__name__)
def test_gate_has_its_degree(kind, degree, assert_degree):
    gate = NormalisedGate(_make(kind), degree=degree)
    assert_degree(gate, torch.randn(2, 3, 4, 4), degree)


@pytest.mark.parametrize("kind", GATES, ids=lambda kind: kind.__name__)
def test_gate_is_the_original_at_the_scale_of_its_data(kind):
    original, s = _make(kind), torch.randn(1, 3, 4, 4) * 5
    gate = NormalisedGate(original)
    gate.calibrate(s)
    torch.testing.assert_close(gate(s), original(s))


def test_gate_at_zero_is_the_gate_of_zero():
    s = torch.zeros(1, 3, requires_grad=True)
    value = NormalisedGate(nn.Sigmoid())(s)
    (gradient,) = torch.autograd.grad(value.sum(), s)
    assert value.tolist() == [[0.5, 0.5, 0.5]]
    assert torch.isfinite(gradient).all()


def test_hard_sigmoid_has_a_second_derivative():
    s = torch.randn(2, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(NormalisedGate(nn.Hardsigmoid())(s).square().sum(), s, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), s)
    assert torch.isfinite(second).all()
    assert second.abs().sum() > 0


def test_glu_keeps_the_degree_and_the_original(assert_degree):
    x = torch.randn(1, 8)
    glu = NormalisedGLU(nn.GLU())
    assert_degree(glu, torch.randn(3, 8))
    glu.calibrate(x)
    torch.testing.assert_close(glu(x), nn.GLU()(x))
