import copy

import pytest
import torch

from axiograd.errors import ConfigurationError
from axiograd.priors import L1, Energy, Gini, Matching, Prior, RightReasons

A = torch.tensor([[1.0, -2.0, 4.0], [0.5, 3.0, 0.0]], dtype=torch.float64)
MASK = torch.tensor([[1, 0, 0], [0, 1, 0]])


def test_sums_and_weights_compose() -> None:
    prior = 2 * (L1() + 3 * RightReasons()) + Gini() * 0.5
    expected = 2 * (L1()(A) + 3 * RightReasons()(A, mask=MASK)) + 0.5 * Gini()(A)
    assert prior(A, mask=MASK) == pytest.approx(expected.item(), rel=1e-15)


def test_builtin_sum_and_minus() -> None:
    assert sum([L1(), L1()])(A) == 2 * L1()(A)
    assert (-L1())(A) == -L1()(A)
    assert (L1() - 2 * RightReasons())(A, mask=MASK) == L1()(A) - 2 * RightReasons()(A, mask=MASK)
    assert (L1() + L1() - L1() - L1())(A) == 0
    for wrong in (lambda: L1() - 1, lambda: 1 - L1(), lambda: L1() - "L1"):
        with pytest.raises(TypeError, match="unsupported operand"):
            wrong()


def test_each_prior_gets_its_own_arguments() -> None:
    prior = RightReasons() + Matching()
    value = prior(A, mask=MASK, teacher=A)
    assert value == RightReasons()(A, mask=MASK)
    assert dict(prior.arguments) == {"mask": True, "has_mask": False, "teacher": True, "has_teacher": False}


def test_missing_argument_is_named_with_its_prior() -> None:
    with pytest.raises(ConfigurationError, match=r"prior L1 \+ prior RightReasons needs the argument 'mask'"):
        (L1() + 2 * RightReasons())(A)
    with pytest.raises(ConfigurationError, match=r"prior Energy needs the argument 'boxes' or 'inside'"):
        Energy()(A)


def test_unknown_argument_of_a_sum_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"does not take the argument 'boxes'; it takes: 'mask', 'has_mask'"):
        (L1() + RightReasons())(A, mask=MASK, boxes=None)


def test_sum_knows_whether_it_is_a_mean_over_samples() -> None:
    assert (L1() + 2 * RightReasons()).per_sample
    assert not (L1() + 2 * Gini()).per_sample


@pytest.mark.parametrize("weight", [float("nan"), float("inf")])
def test_weights_are_finite(weight: float) -> None:
    with pytest.raises(ConfigurationError, match="prior L1 must be finite"):
        weight * L1()


@pytest.mark.parametrize("operation", [lambda p: p + 1, lambda p: p * p, lambda p: 1 + p])
def test_nonsense_is_a_type_error(operation) -> None:
    with pytest.raises(TypeError):
        operation(L1())


def test_a_prior_of_ones_own() -> None:
    class Largest(Prior):
        def forward(self, attributions, *, power=1):
            return attributions.amax() ** power

    assert (L1() + Largest())(A, power=2) == L1()(A) + 16
    assert dict(Largest().arguments) == {"power": False}


def test_priors_can_be_copied() -> None:
    prior = 2 * (L1() + Gini())
    assert copy.deepcopy(prior)(A) == prior(A)
