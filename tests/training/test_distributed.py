"""Two gloo processes with half a batch each train as one process with the whole."""

import pytest
import torch
from torch import nn

from axiograd.priors import Gini
from axiograd.training.distributed import wants_plain_passes
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


@pytest.mark.parametrize("outputs", ["target", "residual"])
def test_held_gates_on_two_processes_equal_double_backward_on_one(outputs: str, ranks: list) -> None:
    for rank in ranks:
        torch.testing.assert_close(rank[f"held, {outputs}"], train("sum", twice=True, outputs=outputs), **EXACT)


@pytest.mark.parametrize("outputs", ["target", "residual"])
@pytest.mark.parametrize("name", ["per sample", "sum"])
@pytest.mark.parametrize("wrap", ["sharded", "static graph"])
def test_sharded_models_and_static_graphs_train_as_one_process(wrap, name: str, outputs: str, ranks: list) -> None:
    for rank in ranks:
        torch.testing.assert_close(
            rank[f"{wrap}, {name}, {outputs}"], train(name, twice=True, outputs=outputs), **EXACT
        )


@pytest.mark.parametrize("outputs", ["target", "random", "residual"])
@pytest.mark.parametrize("wrap", ["sharded", "static graph"])
def test_gates_that_draw_and_write_in_place_under_plain_passes(wrap, outputs: str, ranks: list) -> None:
    for rank in ranks:
        found = rank[f"gated, {wrap}, {outputs}"]
        for what in ("0", "2", "3", "left"):
            torch.testing.assert_close(found[f"{wrap} {what}"], found[f"second derivatives {what}"], **EXACT)
        assert not torch.equal(found[f"{wrap} 2"], found[f"{wrap} 3"])


def test_what_plain_passes_cannot_do_is_refused_with_the_reason(ranks: list) -> None:
    reasons = {
        "a curve": "tanh is neither a linear function",
        "no degree": "certify it before it is sharded",
        "every output": "each output is attributed",
        "a logarithm": "LogGradient is more than",
        "twice": "double_backward=True",
        **dict.fromkeys(("task", "prior", "outputs", "attributions"), "call terms.total.backward()"),
    }
    for rank in ranks:
        assert rank["refused"].keys() == reasons.keys()
        for name, reason in reasons.items():
            assert reason in rank["refused"][name]


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


def test_models_without_wrapping_are_fine() -> None:
    assert wants_plain_passes(nn.Linear(2, 2)) == wants_plain_passes(lambda x: x) == ""
