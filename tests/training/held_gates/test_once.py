"""Gradients of a held step, differentiated again: refused in words; by two backward passes, central differences."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from axiograd.errors import DisconnectedError
from axiograd.priors import L1
from axiograd.training.loss import AttributionLoss


@pytest.fixture(name="case")
def _case():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False)).double()
    return model, torch.randn(6, 4, dtype=torch.float64), torch.arange(6) % 3


def penalty(case, loss):
    model, x, y = case
    gradients = torch.autograd.grad(loss(model, x, y).total, list(model.parameters()), create_graph=True)
    return sum(g.square().sum() for g in gradients)


@pytest.mark.parametrize("outputs", ["target", "random", "residual"])
@pytest.mark.parametrize("double_backward", [None, False])
def test_a_gradient_penalty_on_a_held_step_is_refused_in_words(case, outputs, double_backward):
    loss = AttributionLoss(F.cross_entropy, L1(), 0.1, outputs=outputs, double_backward=double_backward)
    found = penalty(case, loss)
    assert loss.why_twice == ""
    with pytest.raises(DisconnectedError, match=r"held the gates .* double_backward=True.*\.$"):
        found.backward()


def test_a_gradient_penalty_as_the_message_says(case):
    loss = AttributionLoss(F.cross_entropy, L1(), 0.1, double_backward=True)
    penalty(case, loss).backward()
    weight = case[0][2].weight
    ends = []
    for step in (1e-6, -2e-6):
        with torch.no_grad():
            weight[1, 2] += step
        ends.append(float(penalty(case, loss).detach()))
    assert float(weight.grad[1, 2]) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5)
