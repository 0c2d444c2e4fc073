"""The oracle of these tests: brute force in float64, with no code of the package in it."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn


def check_degree(model: nn.Module, x: Tensor, degree: float = 1.0) -> None:
    """F(αx) = αᵏF(x) and x·∇F = k·F for the sum of all outputs, in float64."""
    twin = copy.deepcopy(model).double()
    point = x.detach().double()
    value = twin(point)
    for alpha in (0.3, 0.9, 2.5, 40.0):
        torch.testing.assert_close(twin(alpha * point), alpha**degree * value, rtol=1e-9, atol=1e-12)
    point.requires_grad_()
    (gradient,) = torch.autograd.grad(twin(point).sum(), point)
    torch.testing.assert_close((gradient * point).sum(), degree * value.sum(), rtol=1e-8, atol=1e-10)


@pytest.fixture
def assert_degree() -> Callable[..., None]:
    return check_degree


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
