"""What all priors promise: finite values and gradients at the edges, and gradients that are right."""

from typing import Any

import pytest
import torch
from torch import Tensor

from axiograd.errors import ConfigurationError, InputError
from axiograd.priors import Prior
from support.prior_cases import CASES, Case

EDGES = {
    "ordinary": lambda: torch.linspace(-1.3, 2.0, 24).reshape(2, 1, 3, 4),
    "zero": lambda: torch.zeros(2, 1, 3, 4),
    "one sample": lambda: torch.linspace(-1.3, 2.0, 12).reshape(1, 1, 3, 4),
    "one feature": lambda: torch.tensor([0.5, -2.0]).reshape(2, 1, 1, 1),
    "one sample of one feature": lambda: torch.full((1, 1, 1, 1), 3.0),
    "one zero": lambda: torch.zeros(1, 1, 1, 1),
    "one sample of two is zero": lambda: torch.stack([torch.zeros(1, 3, 4), torch.ones(1, 3, 4)]),
    "all equal": lambda: torch.ones(2, 1, 3, 4),
    "all negative": lambda: -torch.ones(2, 1, 3, 4),
    "tiny": lambda: 1e-30 * torch.linspace(-1.3, 2.0, 24).reshape(2, 1, 3, 4),
    "subnormal": lambda: 1e-42 * torch.linspace(-1.3, 2.0, 24).reshape(2, 1, 3, 4),
}


def value_and_gradient(case: Case, attributions: Tensor) -> tuple[Tensor, Tensor]:
    attributions = attributions.clone().requires_grad_()
    value = case.prior(attributions[0].numel())(attributions, **case.arguments(attributions.detach()))
    (gradient,) = torch.autograd.grad(value, attributions)
    return value, gradient


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_value_and_gradient_are_finite(name: str, edge: str, dtype: torch.dtype) -> None:
    value, gradient = value_and_gradient(CASES[name], EDGES[edge]().to(dtype))
    assert value.shape == ()
    assert value.dtype == dtype
    assert value.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", CASES)
def test_gradient_agrees_with_finite_differences(name: str) -> None:
    torch.manual_seed(3)
    attributions = torch.randn(3, 1, 3, 4, dtype=torch.float64, requires_grad=True)
    prior, arguments = CASES[name].prior(12), CASES[name].arguments(attributions.detach())
    assert torch.autograd.gradcheck(lambda a: prior(a, **arguments), attributions)


@pytest.mark.parametrize("name", CASES)
def test_half_precision_is_computed_in_float32(name: str) -> None:
    attributions = EDGES["ordinary"]().bfloat16()
    value, gradient = value_and_gradient(CASES[name], attributions)
    exact, _ = value_and_gradient(CASES[name], attributions.double())
    assert value.dtype == torch.float32
    assert gradient.dtype == torch.bfloat16
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_autocast_does_not_reach_into_a_prior(name: str) -> None:
    attributions = EDGES["ordinary"]()
    value, _ = value_and_gradient(CASES[name], attributions)
    with torch.autocast("cpu", torch.bfloat16):
        under_autocast, _ = value_and_gradient(CASES[name], attributions)
    assert torch.equal(under_autocast, value)


@pytest.mark.parametrize("name", CASES)
def test_per_sample_priors_are_means_over_samples(name: str) -> None:
    torch.manual_seed(0)
    attributions = torch.randn(4, 1, 3, 4, dtype=torch.float64)
    case = CASES[name]
    prior = case.prior(12)

    def of(part: Tensor) -> Tensor:
        return prior(part, **case.arguments(part))

    halves = (of(attributions[:2]) + of(attributions[2:])) / 2
    whole = of(attributions)
    if prior.per_sample:
        torch.testing.assert_close(halves, whole, rtol=1e-12, atol=1e-12)
    else:
        assert (halves - whole).abs() > 1e-3


@pytest.mark.parametrize("name", CASES)
def test_unknown_argument_is_named(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"does not take the argument 'colour'"):
        CASES[name].prior(12)(torch.ones(1, 1, 3, 4), colour=1)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("wrong", [torch.ones(2, 3, dtype=torch.long), torch.ones(0, 3), torch.tensor(1.0), 3.0])
def test_what_is_no_batch_of_attributions_is_refused(name: str, wrong: Any) -> None:
    prior = CASES[name].prior(3)
    arguments = dict.fromkeys(name for name, required in prior.arguments.items() if required)
    with pytest.raises(InputError):
        prior(wrong, **arguments)


def test_every_prior_of_the_package_is_tested_here() -> None:
    import axiograd.priors as package

    public = {p for p in vars(package).values() if isinstance(p, type) and issubclass(p, Prior)} - {Prior}
    assert {type(case.prior(1)) for case in CASES.values()} >= public
