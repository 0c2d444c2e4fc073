"""What hides part of F from autograd is refused, however it is written; what only looks like it is not."""

import inspect
from pathlib import Path

import pytest
import torch
from torch import nn

import axiograd
from axiograd.homogeneity import certify

X = torch.randn(3, 4, dtype=torch.float64)


class ReluWithIdentityGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.relu()

    @staticmethod
    def backward(ctx, g):
        return g


class RoundWithIdentityGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


def _norm(x):
    return x.norm(dim=1, keepdim=True)


def _no_grad_write(x):
    y = 2 * x
    with torch.no_grad():
        y[:, 0] = 0.0
    return y


def _no_grad_fill(x):
    y = torch.zeros(3, 4, dtype=x.dtype)
    with torch.no_grad():
        y.copy_(x.abs())
    return x * y


def _detached_into_buffer(x):
    y = torch.zeros(3, 4, dtype=x.dtype)
    y.copy_(x * _norm(x.detach()))
    return y


def _buffer_detached(x):
    y = torch.zeros(3, 4, dtype=x.dtype)
    y[:] = x
    return x * _norm(y.detach())


def _inside_autocast(x):
    with torch.autocast("cpu", enabled=False):
        return x * _norm(x.detach())


def _inside_cond(x):
    return torch.cond(x.sum() > 0, lambda x: x * _norm(x.detach()), lambda x: x * _norm(x), (x,))


def _inference_mode(x):
    with torch.inference_mode():
        norm = _norm(x)
    return x + norm


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x.sum().item(),
        lambda x: x * (x / x.norm()).sum().item(),
        lambda x: torch.add(x, x, alpha=x.sum().item()),
        _no_grad_write,
        _no_grad_fill,
        _detached_into_buffer,
        _buffer_detached,
        _inside_autocast,
        _inside_cond,
        _inference_mode,
        ReluWithIdentityGradient.apply,
    ],
)
def test_cuts_are_found(function):
    certificate = certify(function, X)
    assert not certificate.ok
    assert "gradient" in {violation.kind for violation in certificate.violations}


def _no_grad_mask(x):
    with torch.no_grad():
        mask = x > 0
    return x * mask


def _autocast_view(x):
    with torch.autocast("cpu", enabled=False):
        y = 2 * x
        y[:, :1].mul_(3)
        return y * 1


class QuantisedWeight(nn.Linear):
    def forward(self, x):
        return x @ RoundWithIdentityGradient.apply(self.weight)


@pytest.mark.parametrize(
    ("function", "degree"),
    [(_no_grad_mask, 1), (_autocast_view, 1), (QuantisedWeight(4, 4, bias=False).double(), 1)],
)
def test_what_autograd_sees_is_not_refused(function, degree):
    assert certify(function, X).degree == degree


@pytest.mark.parametrize("region", [lambda: torch.autocast("cpu", enabled=False), torch.no_grad])
def test_writes_inside_a_region_are_seen_outside(region):
    def shifted(x):
        y = 2 * x
        with region():
            y[:, 0] = 1.0
        return y

    assert not certify(shifted, X).ok


def test_folding_constants_leaves_buffers_alone():
    class Shift(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("shift", torch.full((4,), -1.0))

        def forward(self, x):
            return x + self.shift.add_(1)

    model = Shift()
    assert certify(model, torch.randn(3, 4)).ok
    assert model.shift.tolist() == [-1.0] * 4


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x / (x.relu() + 1e-3),
        lambda x: x * x / x.relu().clamp_min(1e-3),
        lambda x: x * x / (x.clamp_min(0) + 1e-3),
        lambda x: x.view(torch.float32),
    ],
)
def test_functions_that_only_look_homogeneous(function):
    assert not certify(function, X).ok


def test_rounded_division_does_not_carry_a_baseline():
    assert not certify(lambda x: torch.div(x, 1, rounding_mode="floor") - 1, X, baseline=1.0).ok


def test_sizes_among_the_outputs_have_no_degree():
    assert certify(lambda x: (2 * x, x.shape[0]), X).degree == 1


def test_a_custom_backward_is_named_with_its_line():
    violation = certify(lambda x: ReluWithIdentityGradient.apply(x) + x, X).violations[0]
    assert "ReluWithIdentityGradient is not that of its forward pass" in violation.reason
    assert violation.kind == "gradient"
    assert Path(violation.source.rpartition(":")[0]).name == Path(inspect.getsourcefile(ReluWithIdentityGradient)).name


class RightRelu(torch.autograd.Function):
    """max(0, x) with its own gradient, as fused layers have."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, g):
        return g * (ctx.saved_tensors[0] > 0)


class DoubledGradient(torch.autograd.Function):
    """x, with twice its gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return 2 * g


def test_a_custom_backward_that_is_right_is_certified():
    certificate = certify(nn.Sequential(nn.Linear(4, 8, bias=False), Applied(RightRelu)), X.float())
    assert certificate.ok
    assert "RightRelu" in certificate.assumptions[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_wrong_gradient_of_degree_0_is_seen_by_its_slope(dtype):
    """Euler's identity does not see it: x·∇ of what has degree 0 is 0 whatever the factor."""

    def model(x):
        return x.sum(1) * DoubledGradient.apply(x[:, 0] / x.norm(dim=1))

    x = X.to(dtype).clone().requires_grad_()
    y = model(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close((x * gradient).sum(1), y)
    assert certify(model, x.detach()).violations[0].op == "DoubledGradient"
    with pytest.raises(axiograd.errors.NotHomogeneousError, match="DoubledGradient"):
        axiograd.XGradient(model).attribute(x.detach())


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x)


def test_statistics_for_later_do_not_matter():
    class Tracking(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.ones(4, dtype=torch.float64))

        def forward(self, x):
            y = x / self.scale
            with torch.no_grad():
                self.scale.lerp_(x.std(0), 0.1)
            return y

    assert certify(Tracking(), X).degree == 1
