"""Every operator: the step with held gates has the gradients of the double backward pass."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from axiograd.attribution import Gradient, InputXGradient, LogGradient, Saliency, XGradient
from axiograd.priors import L1, RightReasons
from axiograd.training.loss import AttributionLoss
from support.gated_networks import CASES, make
from support.prior_cases import CASES as PRIORS


def gradients(model: nn.Module, x, y, arguments=None, *, twice: bool, **options) -> tuple[torch.Tensor, str]:
    """All gradients in one vector, and why it took second derivatives."""
    prior = options.pop("prior", L1() + 0.5 * RightReasons())
    if arguments is None:
        arguments = {"mask": x.detach() > 0}
    generator = torch.Generator().manual_seed(0)
    task = options.pop("task", F.cross_entropy)
    loss = AttributionLoss(task, prior, 0.7, generator=generator, double_backward=twice, **options)
    model.zero_grad()
    loss(model, x, y, **arguments)  # the first step looks and checks
    generator.manual_seed(0)
    torch.manual_seed(5)
    loss(model, x, y, **arguments).total.backward()
    found = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters() if p.requires_grad]
    return torch.cat([g.flatten() for g in found]), loss.why_twice


def same(model, x, y, arguments=None, **options) -> None:
    held, why = gradients(model, x, y, arguments, twice=False, **options)
    assert why == ""
    expected, _ = gradients(model, x, y, arguments, twice=True, **options)
    assert float(expected.norm()) > 0
    assert float((held - expected).norm() / expected.norm()) < 1e-12


@pytest.mark.parametrize("outputs", ["target", "random", "residual"])
@pytest.mark.parametrize("name", CASES)
def test_every_operator(name: str, outputs) -> None:
    model, x, y = make(name)
    same(model, x, y, method=InputXGradient, outputs=outputs)


METHODS = {
    "XGradient": (XGradient, {"degree": 1}),
    "InputXGradient": (InputXGradient, {}),
    "Gradient": (Gradient, {}),
    "Saliency": (Saliency, {}),
    "LogGradient": (LogGradient, {}),
}


@pytest.mark.parametrize("outputs", ["target", "random", "residual"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method(method: str, outputs) -> None:
    kind, options = METHODS[method]
    if (method, outputs) != ("LogGradient", "residual"):
        same(*make("no biases"), method=kind, outputs=outputs, **options)


@pytest.mark.parametrize("outputs", ["target", "residual"])
@pytest.mark.parametrize("name", PRIORS)
def test_every_prior(name: str, outputs) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(6, 3)).double()
    x, y = torch.randn(4, 1, 3, 4, dtype=torch.float64), torch.tensor([0, 2, 1, 1])
    model[-1] = nn.Linear(3 * 1 * 2, 3).double()
    prior, arguments = PRIORS[name].prior(12), PRIORS[name].arguments(x)
    same(model, x, y, arguments, method=InputXGradient, outputs=outputs, prior=prior)


@pytest.mark.parametrize("method", METHODS)
def test_one_output(method: str) -> None:
    kind, options = METHODS[method]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False)).double()
    x, y = torch.randn(5, 6, dtype=torch.float64), torch.rand(5, 1, dtype=torch.float64)
    for outputs in ("target", "residual") if method != "LogGradient" else ("target",):
        same(model, x, y, method=kind, outputs=outputs, task=F.binary_cross_entropy_with_logits, **options)


@pytest.mark.parametrize("outputs", ["target", "residual"])
def test_finite_differences(outputs) -> None:
    model, x, y = make("max pool, overlapping and padded", batch=2)
    loss = AttributionLoss(F.cross_entropy, RightReasons(), 0.3, InputXGradient, outputs=outputs)
    found = gradients(model, x, y, twice=False, method=InputXGradient, outputs=outputs, prior=RightReasons())[0]
    mask = {"mask": x > 0}
    if outputs == "residual":  # u is held fixed, which a difference would not do
        held = loss(model, x, y, **mask).outputs
        r = (held.softmax(1) - F.one_hot(y, 3)).detach()
        u = r / r.norm(dim=1, keepdim=True) * 3**0.5
        target = lambda outputs: (outputs * u).sum(1)  # noqa: E731
    else:
        target = y
    values = torch.cat([p.detach().flatten() for p in model.parameters()])
    direction = torch.randn(values.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    totals = []
    for step in (-1e-6, 1e-6):
        nn.utils.vector_to_parameters(values + step * direction, model.parameters())
        terms = AttributionLoss(F.cross_entropy, RightReasons(), 0.7, InputXGradient, double_backward=True)(
            model, x, y, attribution_target=target, **mask
        )
        totals.append(terms.total.item())
    assert (totals[1] - totals[0]) / 2e-6 == pytest.approx(float(found @ direction), rel=1e-6)
