"""The oracle against functions whose degree is known on paper."""

import pytest
import torch
from torch import nn

from axiograd.homogeneity import verify
from support.networks import HOMOGENEOUS, REGULAR, build

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("function", "degree"),
    [
        (lambda x: x.norm(dim=1), 1),
        (lambda x: x.square().sum(1), 2),
        (lambda x: x.prod(1), 4),
        (lambda x: x.abs().sqrt(), 0.5),
        (lambda x: x / x.norm(dim=1, keepdim=True), 0),
        (lambda x: x / x.norm(), 0),  # samples that depend on each other
        (lambda x: torch.cdist(x, 2 * x, p=1.0), 1),  # without a second derivative
    ],
)
def test_measures_the_degree(function, degree):
    found = verify(function, X, degree=degree)
    assert found.ok
    assert found.degree == pytest.approx(degree, abs=1e-9)
    other = verify(function, X, degree=degree + 1)
    assert not other.ok
    # By hand, at the largest scale: |2ᵏ − 2ᵏ⁺¹| = 2ᵏ, relative to the largest output of each sample.
    assert other.scaling_error == pytest.approx(2**degree, rel=1e-6)


@pytest.mark.parametrize("name", [*HOMOGENEOUS, *REGULAR])
def test_tells_x_dnns_from_regular_networks(name):
    network, x = build(name)
    assert verify(network, x).ok is (name in HOMOGENEOUS)


def test_epsilons_are_seen_at_the_datas_scale():
    norm = nn.LayerNorm(4, eps=1e-2, elementwise_affine=False)
    assert not verify(norm, X, degree=0).ok
    assert verify(nn.LayerNorm(4, eps=1e-12, elementwise_affine=False), X, degree=0).ok


def test_hardsigmoid_has_no_second_derivative_and_is_refuted_all_the_same():
    assert not verify(nn.Sequential(nn.Linear(4, 3, bias=False), nn.Hardsigmoid()), X).ok


def test_leaves_the_model_as_it_was():
    network, x = build("batch norm")
    network.train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.get_rng_state()
    verify(network, x)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert network.training


def test_says_that_it_proves_nothing():
    assert "proves nothing" in str(verify(nn.ReLU(), X))
    assert "is not homogeneous of degree 1" in str(verify(nn.Tanh(), X))
