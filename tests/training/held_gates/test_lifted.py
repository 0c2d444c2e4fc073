"""Lifted networks by the held gates of the network inside: equal to the double backward pass."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import axiograd
from axiograd.homogeneity.conversion.lift import Lifted
from axiograd.priors import L1, Gini
from axiograd.training.loss import AttributionLoss


class Residual(nn.Module):
    """No chain: written on a tape."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.last(x + self.first(x).relu())


NETWORKS = {
    "chain": lambda: nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3)),
    "tape": Residual,
    "one output": lambda: nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 1)),
}


def step(model, outputs, method=axiograd.InputXGradient, **options):
    x = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    x = x * torch.tensor([1.0, 2, 0.5, 3, 1]).double()[:, None]
    model.zero_grad()
    generator = torch.Generator().manual_seed(1)
    task = (lambda o, y: o.square().mean()) if model(x).shape[1] == 1 else F.cross_entropy
    loss = AttributionLoss(task, L1() + Gini(), 0.7, method, outputs=outputs, generator=generator, **options)
    terms = loss(model, x, torch.tensor([0, 1, 2, 0, 1]))
    terms.total.backward()
    parts = [terms.total, terms.attributions, terms.outputs, *(p.grad for p in model.parameters())]
    return torch.cat([part.detach().flatten() for part in parts]), loss.why_twice


@pytest.mark.parametrize("outputs", ["target", "random", "residual"])
@pytest.mark.parametrize("baseline", [None, 0.3])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_lifted_network_has_the_gradients_of_the_double_backward_pass(name, baseline, outputs):
    torch.manual_seed(0)
    model = Lifted(NETWORKS[name]().double(), 1.3, baseline)
    wanted, _ = step(model, outputs, double_backward=True)
    found, why_twice = step(model, outputs, double_backward=False)
    assert why_twice == ""
    assert float((found - wanted).norm()) <= 1e-12 * float(wanted.norm())
    if name != "tape":
        found, why_twice = step(model, outputs)
        assert why_twice == ""
        assert float((found - wanted).norm()) <= 1e-12 * float(wanted.norm())


def test_x_gradient_of_a_lifted_network_is_certified_and_held():
    torch.manual_seed(0)
    model = Lifted(Residual().double(), 1.3)
    pairs = [step(model, "residual", axiograd.XGradient, double_backward=twice) for twice in (False, True)]
    assert pairs[0][1] == ""
    torch.testing.assert_close(pairs[0][0], pairs[1][0], rtol=1e-11, atol=1e-13)


def _zeros(x):
    x[1] = 0
    return x


CANNOT = {
    "a curve inside": (lambda: Lifted(nn.Sequential(nn.Linear(6, 3), nn.Tanh()), 1.0), lambda x: x, "tanh"),
    "a sample of zeros": (lambda: Lifted(nn.Linear(6, 3), 1.0), _zeros, "an input of zeros has no scale"),
    "a trained input": (lambda: Lifted(nn.Linear(6, 3), 1.0), lambda x: x.requires_grad_(), "trained"),
}


@pytest.mark.parametrize("name", CANNOT)
def test_what_has_no_held_gates_inside_is_differentiated_twice(name):
    build, change, reason = CANNOT[name]
    torch.manual_seed(0)
    model, found = build().double(), []
    for twice in (False, True):
        x = change(torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2)))
        model.zero_grad()
        loss = AttributionLoss(F.cross_entropy, L1(), method=axiograd.InputXGradient, double_backward=twice)
        loss(model, x, torch.tensor([0, 1, 2, 0])).total.backward()
        assert twice or reason in loss.why_twice
        found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert torch.equal(*found)


def test_a_hook_on_the_lifted_network_is_heeded():
    torch.manual_seed(0)
    model = Lifted(nn.Linear(6, 3).double(), 1.0)
    model.register_forward_hook(lambda module, args, output: 2 * output)
    loss = AttributionLoss(F.cross_entropy, L1(), method=axiograd.InputXGradient, double_backward=False)
    x = torch.randn(4, 6, dtype=torch.float64)
    terms = loss(model, x, torch.tensor([0, 1, 2, 0]))
    assert "hooks" in loss.why_twice
    torch.testing.assert_close(terms.outputs, model(x))
