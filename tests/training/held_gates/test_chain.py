"""Chains of torch's own layers, whose step is made by formulas: equal to the double backward pass, or left alone."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import axiograd
from axiograd.priors import L1, Gini
from axiograd.training.held_gates.links import links_of
from axiograd.training.held_gates.operators import NotChainError
from axiograd.training.loss import AttributionLoss


def binary(outputs, y):
    return F.binary_cross_entropy_with_logits(outputs.flatten(), y)


def networks():
    shared = nn.Linear(7, 7)
    frozen = nn.Linear(7, 3).requires_grad_(requires_grad=False)
    return {
        "perceptron": (
            nn.Sequential(
                nn.Linear(6, 7, bias=False), nn.ReLU(), nn.Sequential(shared, nn.ReLU(inplace=True)), shared, nn.ReLU(),
                nn.Dropout(0.0), nn.Linear(7, 3),
            ),
            (6,),
        ),
        "frozen": (nn.Sequential(nn.Linear(6, 7), nn.ReLU(), frozen), (6,)),
        "sequences": (
            nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 2), nn.Flatten(), nn.Linear(8, 3)),
            (4, 6),
        ),
        "convolutions": (
            nn.Sequential(
                nn.PixelUnshuffle(2), nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, 1, ceil_mode=True),
                nn.Conv2d(6, 6, 3, groups=2, stride=1, dilation=1, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                nn.Flatten(), nn.Linear(6, 3),
            ),
            (1, 12, 12),
        ),
        "one output": (nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 1)), (6,)),
    }  # fmt: skip


@pytest.fixture(params=list(networks()))
def case(request):
    torch.manual_seed(0)
    model, shape = networks()[request.param]
    single = request.param == "one output"
    y = torch.tensor([0.0, 1, 1, 0, 1]).double() if single else torch.tensor([0, 1, 2, 0, 1])
    return model.double(), torch.randn(5, *shape, dtype=torch.float64), y, binary if single else F.cross_entropy


def step(case, method, outputs, *, twice=None, backward=lambda terms: terms.total.backward()):
    model, x, y, task = case
    model.zero_grad()
    loss = AttributionLoss(
        task,
        L1() + Gini(),
        0.7,
        method,
        outputs=outputs,
        generator=torch.Generator().manual_seed(1),
        double_backward=twice,
    )
    terms = loss(model, x, y)
    backward(terms)
    assert (loss.why_twice == "") is not bool(twice)
    found = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return torch.cat([terms.total.detach().reshape(1), *(g.flatten() for g in found)])


@pytest.mark.parametrize("outputs", ["target", "random", "residual"])
@pytest.mark.parametrize("method", [axiograd.InputXGradient, axiograd.Saliency])
def test_a_chain_has_the_gradients_of_the_double_backward_pass(case, method, outputs):
    found, wanted = step(case, method, outputs), step(case, method, outputs, twice=True)
    assert float((found - wanted).norm()) <= 1e-12 * float(wanted.norm())


BACKWARD = {
    "terms by themselves": lambda terms: (terms.task.backward(retain_graph=True), (2 * terms.prior).backward()),
    "other multiples": lambda terms: (3 * terms.task + 0.5 * terms.prior).backward(),
    "more terms": lambda terms: (terms.total + terms.outputs.square().sum()).backward(),
    "twice": lambda terms: (terms.total.backward(retain_graph=True), terms.total.backward()),
}


@pytest.mark.parametrize("name", BACKWARD)
@pytest.mark.parametrize("outputs", ["target", "residual"])
def test_every_way_to_call_backward_works(name, outputs):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3)).double()
    case = model, torch.randn(5, 6, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1]), F.cross_entropy
    found, wanted = (
        step(case, axiograd.InputXGradient, outputs, twice=twice, backward=BACKWARD[name]) for twice in (None, True)
    )
    assert float((found - wanted).norm()) <= 1e-12 * float(wanted.norm())


def test_inputs_that_are_trained_have_their_gradient():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    data, y = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1])
    found = []
    for twice in (None, True):
        x = data.clone().requires_grad_()
        AttributionLoss(F.cross_entropy, L1(), method=axiograd.InputXGradient, double_backward=twice)(
            model, x, y
        ).total.backward()
        found.append(x.grad)
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-13)


class Negated(nn.Sequential):
    def forward(self, x):
        return -super().forward(x)


def _hooked():
    model = nn.Sequential(nn.Linear(3, 2))
    model[0].register_forward_hook(lambda module, args, output: 2 * output)
    return model


def _patched():
    model = nn.Sequential(nn.Linear(3, 2))
    model[0].forward = lambda x: -F.linear(x, model[0].weight)
    return model


def _parametrised():
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)))


NO_CHAINS = {
    "a forward of its own": lambda: Negated(nn.Linear(3, 2)),
    "a hook": _hooked,
    "a patched layer": _patched,
    "parametrised": _parametrised,
    "an unknown layer": lambda: nn.Sequential(nn.Linear(3, 2), nn.Tanh()),
    "dropout": lambda: nn.Sequential(nn.Linear(3, 2), nn.Dropout()),
    "a function": lambda: torch.relu,
    "samples beside one another": lambda: nn.Sequential(nn.Flatten(0)),
    "padding by copies": lambda: nn.Sequential(nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect")),
}


@pytest.mark.parametrize("name", NO_CHAINS)
def test_what_may_be_something_else_is_no_chain(name):
    with pytest.raises(NotChainError):
        links_of(NO_CHAINS[name]())


def test_a_class_of_torch_with_another_forward_is_no_chain(monkeypatch):
    model = nn.Sequential(nn.Linear(3, 2))
    assert len(links_of(model)) == 1
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: -F.linear(x, self.weight))
    with pytest.raises(NotChainError):
        links_of(model)


def test_a_hook_that_comes_later_is_heeded():
    torch.manual_seed(0)
    model, x, y = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(5, 3), torch.zeros(5).long()
    loss = AttributionLoss(F.cross_entropy, L1(), method=axiograd.InputXGradient)
    first = loss(model, x, y)
    model[0].register_forward_hook(lambda module, args, output: 2 * output)
    second = loss(model, x, y)
    assert "it is faster" in loss.why_twice
    torch.testing.assert_close(second.outputs, model(x))
    assert not torch.allclose(first.outputs, second.outputs)


def test_weights_that_change_before_the_backward_pass_are_noticed():
    model, x, y = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(5, 3), torch.zeros(5).long()
    terms = AttributionLoss(F.cross_entropy, L1(), method=axiograd.InputXGradient)(model, x, y)
    with torch.no_grad():
        model[0].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        terms.total.backward()
