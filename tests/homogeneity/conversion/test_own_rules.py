"""A rule that a user adds reaches the conversion: what is invariant by it needs no rewriting."""

import pytest
import torch
from torch import Tensor, nn

from axiograd.homogeneity import rule
from axiograd.homogeneity.conversion import to_xdnn
from axiograd.homogeneity.rules.registry import RULES


@torch.library.custom_op("conversion_test::direction", mutates_args=())
def direction(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def _backward(ctx, grad):
    (x,) = ctx.saved_tensors
    size = x.norm(dim=-1, keepdim=True)
    return grad / size - x * (grad * x).sum(-1, keepdim=True) / size**3


direction.register_fake(torch.empty_like)
direction.register_autograd(_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


def _called(x):
    return direction(x)


class Gated(nn.Module):
    """y · sigmoid(V y/|y|) with y = Wx: of degree 1, without anything to strip."""

    def __init__(self, call):
        super().__init__()
        self.first, self.gate, self.call = nn.Linear(4, 6, bias=False), nn.Linear(6, 6, bias=False), call

    def forward(self, x):
        y = self.first(x)
        return y * self.gate(self.call(y)).sigmoid()


@pytest.fixture
def own_rule(monkeypatch):
    monkeypatch.setitem(RULES, "conversion_test::direction", None)  # taken out again afterwards
    rule("conversion_test::direction")(lambda call: 0 * call.degree("x"))


@pytest.mark.usefixtures("own_rule")
@pytest.mark.parametrize(
    "call",
    [_called, torch.ops.conversion_test.direction, torch.ops.conversion_test.direction.default],
    ids=["function", "operator", "overload"],
)
def test_what_a_rule_says_is_invariant_is_left_alone(call):
    torch.manual_seed(0)
    model, x = Gated(call), torch.randn(8, 4)
    y = x @ model.first.weight.t()
    expected = y * torch.sigmoid(y / y.norm(dim=-1, keepdim=True) @ model.gate.weight.t())
    stripped = to_xdnn(model, x, how="strip")
    assert stripped.certificate.degree == 1
    torch.testing.assert_close(stripped.model(x), expected)
