"""Held gates beside the double backward pass where samples mix, constants meet gates, and parameters have hooks."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from axiograd import AttributionLoss, InputXGradient
from axiograd.priors import L1


class Network(nn.Module):
    def __init__(self, between):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6).double(), nn.Linear(6, 2).double()
        self.level = nn.Parameter(torch.linspace(-1, 1, 6, dtype=torch.float64))
        self.between, self.order = between, torch.arange(4)

    def forward(self, x):
        return self.last(self.between(self, self.first(x)))


def gradients(model, *, double_backward, loss=None):
    torch.manual_seed(1)
    x, y = torch.randn(4, 6, dtype=torch.float64), torch.tensor([0, 1, 1, 0])
    loss = loss or AttributionLoss(
        F.cross_entropy, L1(), 2.0, InputXGradient, outputs="residual", double_backward=double_backward
    )
    terms = loss(model, x, y)
    found = torch.autograd.grad(terms.total, list(model.parameters()), allow_unused=True)
    return loss, [terms.total.detach(), *(torch.zeros(()) if g is None else g for g in found)]


def agree(model, loss=None):
    loss, held = gradients(model, double_backward=False, loss=loss)
    assert loss.why_twice == ""
    for a, b in zip(held, gradients(model, double_backward=True)[1], strict=True):
        torch.testing.assert_close(a, b.to(a), rtol=1e-10, atol=1e-12)
    return loss


@pytest.mark.parametrize(
    "between",
    [
        lambda _, h: F.relu(h + 0.5 * h.roll(2, 0)),
        lambda _, h: F.relu(torch.cat([h.chunk(2)[0] + h.chunk(2)[1], h.chunk(2)[1]])),
        lambda _, h: F.relu(torch.eye(4, dtype=h.dtype).roll(2, 0) @ h),
        lambda own, h: torch.maximum(h, own.level),
        lambda own, h: torch.minimum(torch.full_like(h, 0.3), h),
        lambda own, h: F.relu(h + own.level.expand_as(h)),
        lambda own, h: F.relu(h * own.level.type_as(h)),
    ],
)
def test_gradients_are_those_of_the_double_backward_pass(between):
    torch.manual_seed(0)
    agree(Network(between))


def test_an_order_that_mixes_samples_later_is_noticed():
    torch.manual_seed(0)
    model = Network(lambda own, h: F.relu(h + h[own.order]))
    loss = agree(model)
    model.order = torch.tensor([2, 3, 0, 1])
    agree(model, loss)


@pytest.mark.parametrize(
    "between",
    [
        lambda own, h: torch.diff(h, prepend=own.level.expand(4, 6)[:, :1], dim=1),
        lambda own, h: torch.addmm(h, torch.ones(4, 1, dtype=h.dtype), own.level[None]),
    ],
)
def test_what_cannot_be_held_goes_by_double_backward(between):
    torch.manual_seed(0)
    loss, found = gradients(Network(between), double_backward=False)
    assert loss.why_twice
    assert all(g.isfinite().all() for g in found)


def test_hooks_of_parameters_that_the_prior_does_not_reach():
    model = Network(lambda _, h: F.relu(h))
    seen = []
    model.last.bias.register_hook(lambda g: seen.append(g.shape) or 2 * g)
    agree(model)
    assert set(seen) == {(2,)}


@pytest.mark.parametrize("outputs", ["target", "residual"])
@pytest.mark.parametrize(
    "wrap",
    [lambda model: torch.compile(model, backend="eager"), nn.DataParallel],
    ids=["compiled", "data parallel"],
)
def test_wrapped_modules_have_the_gradients_of_their_own(wrap, outputs):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    x, y = torch.randn(4, 6, dtype=torch.float64), torch.tensor([0, 2, 1, 0])
    found = []
    for given, twice in ((wrap(model), False), (model, True)):
        loss = AttributionLoss(F.cross_entropy, L1(), 2.0, InputXGradient, outputs=outputs, double_backward=twice)
        loss(given, x, y)
        torch.manual_seed(3)
        model.zero_grad()
        loss(given, x, y).total.backward()
        assert (loss.why_twice == "") is not twice
        found.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-14)
