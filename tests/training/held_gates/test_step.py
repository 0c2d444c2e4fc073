"""The step with held gates in the circumstances that training has: right, or refused, and never silently wrong."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from axiograd.attribution import InputXGradient
from axiograd.errors import ConfigurationError
from axiograd.priors import L1, RightReasons
from axiograd.training.loss import AttributionLoss
from axiograd.training.mixup import MixedTarget
from support.gated_networks import make

OUTPUTS = ["target", "random", "residual"]


@pytest.fixture(name="case")
def _case():
    return make("max pool, overlapping and padded")


def terms_of(case, outputs, *, twice=False, model=None, weight=0.7, **options):
    own, x, y = case
    loss = AttributionLoss(
        options.pop("task", F.cross_entropy),
        RightReasons(),
        weight,
        InputXGradient,
        outputs=outputs,
        generator=torch.Generator().manual_seed(0),
        double_backward=twice,
        **options,
    )
    terms = loss(model or own, x, options.pop("y", y), mask=x.detach() > 0)
    assert (loss.why_twice == "") is not twice
    return terms


def grads(model: nn.Module) -> torch.Tensor:
    found = torch.cat(
        [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in model.parameters()]
    )
    model.zero_grad()
    return found


def same(case, outputs, backward, **options) -> None:
    found = []
    for twice in (False, True):
        backward(terms_of(case, outputs, twice=twice, **options))
        found.append(grads(case[0]))
    assert found[1].norm() > 0
    assert (found[0] - found[1]).norm() / found[1].norm() < 1e-12


def backward_twice(terms) -> None:
    terms.total.backward(retain_graph=True)
    (3 * terms.prior).backward(retain_graph=True)
    (0.5 * terms.total).backward()


BACKWARD = {
    "total": lambda terms: terms.total.backward(),
    "prior alone": lambda terms: terms.prior.backward(),
    "task alone": lambda terms: terms.task.backward(),
    "scaled": lambda terms: (terms.total * 1024).backward(),
    "negative": lambda terms: (-terms.total).backward(),
    "other weights": lambda terms: (0.3 * terms.task + 5 * terms.prior).backward(),
    "a further loss on the outputs": lambda terms: (terms.total + terms.outputs.square().mean()).backward(),
    "a further loss on the attributions": lambda terms: (terms.total + terms.attributions.pow(4).sum()).backward(),
    "only outputs": lambda terms: terms.outputs[:, 0].sum().backward(),
    "several times": backward_twice,
}


@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("name", BACKWARD)
def test_every_way_to_call_backward(name: str, outputs, case) -> None:
    same(case, outputs, BACKWARD[name])


@pytest.mark.parametrize("outputs", ["target", "residual"])
def test_gradients_by_inputs_that_ask_for_them(outputs, case) -> None:
    model, x, y = case
    found = []
    for twice in (False, True):
        given = x.clone().requires_grad_()
        (terms_of((model, given * 1.0, y), outputs, twice=twice).total).backward()
        found.append(torch.cat([grads(model), given.grad.flatten()]))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_frozen_layers_hooks_on_parameters_and_groups(outputs, case) -> None:
    model = case[0]
    model[0].weight.requires_grad_(requires_grad=False)
    seen = []
    model[-1].weight.register_hook(lambda g: seen.append(g.clone()))  # the first step of a loss also checks
    same(case, outputs, BACKWARD["total"])
    torch.testing.assert_close(seen[1], seen[3], rtol=1e-12, atol=1e-14)
    assert model[0].weight.grad is None


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_weights_that_change_before_backward_are_noticed(outputs, case) -> None:
    terms = terms_of(case, outputs)
    with torch.no_grad():
        case[0][0].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        terms.total.backward()


class Captured(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        self.hidden = self.inner[0](x)
        return self.inner[1:](self.hidden)


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_a_loss_on_a_hidden_layer_is_right_or_refused(outputs, case) -> None:
    model, x, y = case
    captured = Captured(model)
    found = []
    for twice in (False, True):
        try:
            terms = terms_of((captured, x, y), outputs, twice=twice)
            (terms.total + captured.hidden.square().mean()).backward()
        except RuntimeError:
            assert outputs == "residual"  # its hidden values lead to no parameter
            assert not twice
            return
        found.append(grads(model))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("layers", [slice(2), slice(-1)], ids=["two", "all but one"])
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("outputs", OUTPUTS)
def test_checkpointing(outputs, reentrant, layers, case) -> None:
    model, x, y = case

    def forward(v):
        return model[layers.stop :](checkpoint(model[layers], v, use_reentrant=reentrant))

    found = []
    for function in (forward, model):
        loss = AttributionLoss(
            F.cross_entropy,
            L1(),
            0.7,
            InputXGradient,
            outputs=outputs,
            generator=torch.Generator().manual_seed(0),
            double_backward=function is model or (None if reentrant else False),
        )
        loss(function, x, y).total.backward()
        assert (loss.why_twice == "") is (function is forward)
        found.append(grads(model))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_bfloat16(outputs) -> None:
    model, x, y = make("residual sum", batch=16)
    found = []
    for twice in (False, True):
        with torch.autocast("cpu", torch.bfloat16):
            terms = terms_of((copy.deepcopy(model).float(), x.float(), y), outputs, twice=twice, model=None)
        terms.total.backward()
        assert terms.outputs.dtype == torch.bfloat16
        found.append(terms)
    assert F.cosine_similarity(found[0].attributions.flatten(), found[1].attributions.flatten(), dim=0) > 0.99


def test_float16_does_not_lose_the_residual_of_a_network_that_is_sure() -> None:
    """The task's gradient is below float16's smallest number; what is attributed is a unit vector times √C."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 64, bias=False), nn.ReLU(), nn.Linear(64, 3, bias=False))
    x = torch.randn(16, 6)
    y = model(x).argmax(1)
    with torch.no_grad():  # of degree 1: every row is as sure as the others
        x = x * 14 / model(x).topk(2).values.diff().abs()
    with torch.autocast("cpu", torch.float16):
        rounded = model(x).detach().float().requires_grad_()
    (r,) = torch.autograd.grad(F.cross_entropy(rounded, y), rounded)  # of which float32 knows but a digit
    r = r.double()
    inputs = x.double().requires_grad_()
    scores = copy.deepcopy(model).double()(inputs)
    (gradient,) = torch.autograd.grad((scores * 3**0.5 * r / r.norm(dim=1, keepdim=True)).sum(), inputs)
    expected = (inputs * gradient).detach()
    loss = AttributionLoss(F.cross_entropy, L1(), 1.0, InputXGradient, outputs="residual", double_backward=False)
    with torch.autocast("cpu", torch.float16):
        found = loss(lambda inputs: model(inputs).float(), x, y).attributions.detach().double()
    assert float((found - expected).abs().max()) <= 2**-9 * float(expected.abs().max())  # float16 rounds at 2⁻¹¹


def test_the_residual_of_any_task(case) -> None:
    model, x, _y = case
    values = torch.randn(len(x), 3, dtype=torch.float64)
    terms = terms_of((model, x, values), "residual", task=F.mse_loss)
    r = (terms.outputs - values).detach()
    u = 3**0.5 * r / r.norm(dim=1, keepdim=True)
    expected = InputXGradient(model).attribute(x, lambda outputs: (outputs * u).sum(1))
    torch.testing.assert_close(terms.attributions, expected, rtol=1e-12, atol=1e-14)
    same((model, x, values), "residual", BACKWARD["total"], task=F.mse_loss)


def test_samples_without_a_residual_have_no_attribution(case) -> None:
    _model, _x, _y = case

    def hinge(outputs, target):
        return (outputs * torch.tensor([1.0, 0.0, 1.0, 0.0])[:, None]).square().mean()

    terms = terms_of(case, "residual", task=hinge)
    assert not terms.attributions[1::2].any()
    assert terms.attributions[::2].any()
    same(case, "residual", BACKWARD["total"], task=hinge)


def test_one_output_where_some_samples_have_no_gradient() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)).double()
    x = torch.randn(5, 6, dtype=torch.float64)

    def task(outputs, target):
        return (outputs[:, 0] * target).square().mean()

    y = torch.tensor([1.0, 0.0, 2.0, 0.0, 1e-200], dtype=torch.float64)
    for name in ("total", "prior alone", "scaled", "several times"):
        same((model, x, y), "target", BACKWARD[name], task=task)


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_outputs_without_a_dimension_of_their_own(outputs) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1), nn.Flatten(0)).double()
    x, y = torch.randn(5, 6, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    same((model, x, y), outputs, BACKWARD["total"], task=F.mse_loss)


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.last = nn.Linear(4, 6), nn.Linear(3, 6), nn.Linear(6, 3)

    def forward(self, left, right):
        hidden = self.left(left) + self.right(right)
        return {"logits": self.last(hidden.relu()), "hidden": hidden}


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_several_inputs_and_outputs(outputs) -> None:
    torch.manual_seed(0)
    model, x, y = Several().double(), torch.randn(4, 7, dtype=torch.float64), torch.arange(4) % 3
    found = []
    for twice in (False, True):
        loss = AttributionLoss(
            lambda out, y: F.cross_entropy(out["logits"], y) + out["hidden"].square().mean(),
            L1(),
            method=InputXGradient,
            outputs=outputs,
            of=1,
            generator=torch.Generator().manual_seed(0),
            double_backward=twice,
        )
        loss(model, (x[:, :4], x[:, 4:]), y).total.backward()
        assert (loss.why_twice == "") is not twice
        found.append(grads(model))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-13)


def test_a_mixed_target(case) -> None:
    model, x, y = case
    mixed = MixedTarget(y, y.flip(0), 0.3)
    for outputs in ("target", "residual"):
        same((model, x, mixed), outputs, BACKWARD["total"])


def test_the_residual_is_refused_where_it_means_nothing(case) -> None:
    from axiograd.attribution import IntegratedGradients, LogGradient

    for method in (LogGradient, IntegratedGradients):
        with pytest.raises(ConfigurationError, match=f"which {method.__name__} does not"):
            AttributionLoss(F.cross_entropy, L1(), method=method, outputs="residual")(*case)


class Cut(torch.autograd.Function):
    """A straight-through estimator: its gradient is not that of the function."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def _without_gradient(h):
    with torch.no_grad():
        return h.relu()


def _in_place(h):
    h = h * 1
    view = h[:, :2]
    h.mul_(2)
    return view


def _in_place_by_position(h):
    view = h[:, :2]
    F.relu(h, True)
    return view


CANNOT = {
    "a curve": (lambda h: h.tanh(), "tanh is neither a linear function"),
    "a product": (lambda h: h * h, "multiplies two values"),
    "a quotient": (lambda h: h / (1 + h.abs().sum(1, keepdim=True)), "divides by a value"),
    "a cut": (lambda h: h + h.detach(), "detach"),
    "no gradient": (lambda h: h + _without_gradient(h), "switched off"),
    "an autograd function": (Cut.apply, "switched off"),
    "a view in place": (_in_place, "has views"),
    "a view in place by position": (_in_place_by_position, "has views"),
    "batch statistics": (lambda h: F.batch_norm(h, None, None, training=True), "statistics of the batch"),
}


@pytest.mark.parametrize("name", CANNOT)
def test_what_cannot_be_held_goes_by_double_backward(name: str) -> None:
    function, reason = CANNOT[name]
    torch.manual_seed(0)
    first, last = nn.Linear(6, 4).double(), nn.LazyLinear(3).double()
    x, y = torch.randn(4, 6, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    model = nn.Sequential(first, nn.Identity(), last)
    model[1].forward = function
    model(x)
    found = []
    for twice in (False, True):
        loss = AttributionLoss(F.cross_entropy, L1(), 0.7, InputXGradient, double_backward=twice)
        loss(model, x, y).total.backward()
        found.append(grads(model))
        assert twice or reason in loss.why_twice
    assert torch.equal(*found)


def test_small_networks_that_are_no_chains_are_differentiated_twice_because_that_is_faster_for_them(case) -> None:
    model, x, y = case
    loss = AttributionLoss(F.cross_entropy, L1(), method=InputXGradient)
    loss(lambda x: 1.0 * model(x), x, y)
    assert "it is faster" in loss.why_twice
    large = nn.Sequential(nn.Linear(2000, 1000, bias=False), nn.ReLU(), nn.Linear(1000, 1, bias=False))
    loss = AttributionLoss(F.mse_loss, L1())
    loss(large, torch.randn(64, 2000), torch.randn(64, 1))
    assert loss.why_twice == ""
