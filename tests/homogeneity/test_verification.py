"""The oracle against functions whose degree is known on paper."""

import pytest
import torch
from torch import nn

from axiograd import XGradient
from axiograd.errors import InputError, TargetError
from axiograd.homogeneity import verify
from axiograd.homogeneity.conversion.layers import UncentredBatchNorm
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
    # By hand, at the smallest scale: |αᵏ − αᵏ⁺¹| / αᵏ⁺¹ = 1/α − 1.
    assert other.scaling_error == pytest.approx(63, rel=1e-6)


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


def _head():
    return nn.Linear(4, 3, bias=False)


@pytest.mark.parametrize(
    "target", [1, torch.tensor([0, 1, 2, 0, 1]), [0, 1, 2, 0, 1], (2,), [(0,), (1,), (2,), (0,), (1,)], "all"]
)
def test_targets_are_those_of_attribution(target):
    broken = nn.Sequential(_head(), nn.ReLU())
    assert verify(broken, X, target=target).ok
    assert not verify(nn.Linear(4, 3), X, target=target).ok


@pytest.mark.parametrize("target", [5, -1, (3,), torch.tensor([0, 1]), 1.5, torch.tensor([0.0]), "none", (0, 0)])
def test_targets_that_attribution_refuses_are_refused(target):
    with pytest.raises(TargetError) as refused:
        verify(_head(), X, target=target)
    with pytest.raises(TargetError) as expected:
        XGradient(_head()).attribute(X, target=target)
    assert str(refused.value) == str(expected.value)


def test_only_the_target_is_measured():
    mixed = lambda x: torch.stack([x.sum(1), x.sum(1) ** 2], 1)  # noqa: E731
    assert verify(mixed, X, target=0).ok
    assert verify(mixed, X, target=1, degree=2).ok
    assert verify(mixed, X, target=lambda output: output[:, 1].sqrt()).ok
    assert not verify(mixed, X).ok


def test_an_empty_batch_is_refused():
    with pytest.raises(InputError, match=r"shape \(0, 4\)"):
        verify(_head(), torch.randn(0, 4))


def test_leaves_a_model_in_a_closure_as_it_was():
    norm = nn.BatchNorm1d(4).train()
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    verify(lambda z: norm(z), X, degree=0)  # noqa: PLW0108 - a closure
    torch.testing.assert_close(norm.state_dict(), before)
    verify(norm.forward, X, degree=0)
    torch.testing.assert_close(norm.state_dict(), before)


def test_a_closure_is_measured_with_the_same_buffers_at_every_scale():
    norm = UncentredBatchNorm(4).train()
    assert verify(lambda z: 2 * norm(z), X).ok
    assert norm.running_var.tolist() == [1.0] * 4
