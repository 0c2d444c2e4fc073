"""Two gloo processes with half a batch each train as one process with the whole."""

import pytest
import torch

from axiograd.priors import Gini
from support.prior_steps import PRIORS, data, everything, second_order, train, uneven
from support.two_ranks import on_two_ranks

EXACT = {"rtol": 0.0, "atol": 1e-10}


@pytest.fixture(scope="module")
def ranks() -> list:
    return on_two_ranks(everything)


@pytest.mark.parametrize("name", PRIORS)
def test_gradients_and_weights_after_twenty_steps_equal_those_of_one_process(name: str, ranks: list) -> None:
    alone = train(name)
    for rank in ranks:
        torch.testing.assert_close(rank[name], alone, **EXACT)


def test_the_comparison_can_fail() -> None:
    assert (train("gini")["last weights"] - train("per sample")["last weights"]).abs().max() > 1e-3


@pytest.mark.parametrize("wrapping", ["unused parameters allowed", "gradients as views"])
def test_other_ways_to_wrap_are_exact_too(wrapping: str, ranks: list) -> None:
    for rank in ranks:
        torch.testing.assert_close(rank[wrapping], train("sum"), **EXACT)


def test_a_held_step_on_two_processes_equals_double_backward_on_one(ranks: list) -> None:
    for rank in ranks:
        torch.testing.assert_close(rank["held"], train("sum", twice=True, outputs="residual"), **EXACT)


def test_wrappers_that_would_lose_gradients_are_refused(ranks: list) -> None:
    for rank in ranks:
        assert "static_graph=True" in rank["refused"]["static graph"]
        assert "the model is sharded" in rank["refused"]["sharded"]


def test_gini_is_exact_with_unequal_batches(ranks: list) -> None:
    for rank in ranks:
        torch.testing.assert_close(rank["uneven"], uneven(), **EXACT)


def test_batch_mean_has_a_second_derivative(ranks: list) -> None:
    # Both ranks add their own Ω = Σ ā³, so first derivatives are twice, their squares four times those of one process.
    for rank in ranks:
        torch.testing.assert_close(rank["second order"], 4 * second_order(), **EXACT)


def test_a_prior_can_be_kept_to_its_own_rank(ranks: list) -> None:
    for index, rank in enumerate(ranks):
        torch.testing.assert_close(rank["own"], Gini()(data()[0][0][index::2]), **EXACT)
