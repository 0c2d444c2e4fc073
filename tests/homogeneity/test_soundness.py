"""A thousand random networks: not one certificate that brute force refutes."""

import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from support.certificates.draws import draw, networks
from support.certificates.programs import run
from support.certificates.soundness import Tally, examine

BATCHES = 10
BATCH = 40
IN_PLACE_BATCHES = 3
IN_PLACE_BATCH = 20

# A refuted network is printed as it is: shrinking it would certify hundreds of smaller ones.
quiet = settings(
    phases=[Phase.explicit, Phase.generate],
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)


@pytest.fixture(scope="module")
def tally():
    return Tally()


@settings(quiet, max_examples=BATCHES, derandomize=True)
@given(batch=networks(BATCH), seed=st.integers(0, 99))
def test_plain_networks(tally, batch, seed):
    examine(batch, tally, seed=seed)
    assert not tally.refuted


@settings(quiet, max_examples=IN_PLACE_BATCHES, derandomize=True)
@given(batch=networks(IN_PLACE_BATCH, in_place=True), seed=st.integers(0, 99))
def test_networks_with_changes_in_place(tally, batch, seed):
    examine(batch, tally, seed=seed)
    assert not tally.refuted


def test_a_thousand_networks_of_both_kinds_were_seen(tally):
    assert tally.examples >= 1000
    assert tally.certified >= 300
    assert tally.refused >= 100


def test_the_oracle_can_refute(monkeypatch):
    """With one rule broken on purpose, a counterexample is found: the test can fail."""
    from axiograd.homogeneity.rules.registry import RULES

    monkeypatch.setitem(RULES, "aten::sigmoid", lambda call: call.first())
    generator = random.Random(0)
    batch = [(("sigmoid", 0, 0, 0), *draw(generator)) for _ in range(20)] + [(("sigmoid", 0, 0, 0),)]
    assert examine(batch, Tally()).refuted


@pytest.mark.parametrize("name", ["mean of relu", "norm", "root", "rows over columns"])
def test_the_oracle_refutes_epsilons_that_divide_alone(name, monkeypatch):
    """With every guard taken for harmless, dead or sparse inputs are counterexamples."""
    network = (("relu", 0, 0, 0), (f"guard: {name}", 1, 2, 0))
    assert not examine([network], Tally()).refuted
    monkeypatch.setattr("axiograd.homogeneity.rules.epsilons._only_divides", lambda *_: True)
    assert any(examine([network], Tally(), seed=seed).refuted for seed in range(4))


def test_networks_run_alone():
    from support.certificates.programs import points

    assert run((("relu", 0, 0, 0), ("matmul", 0, 1, 2)), *points()).shape == (1, 4, 4)
