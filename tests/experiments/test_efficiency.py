"""Efficiency with the smallest of the quick networks, and the table beside the paper's ratios."""

from dataclasses import replace

import pytest
from torch import nn

from axiograd.errors import AxiogradError
from axiograd.experiments import efficiency
from axiograd.experiments.training_cost import interleaved, peak_mib, ratio


@pytest.fixture
def samples(monkeypatch):
    """Samples that have passed through linear layers so far: a clock that no other program can move."""
    passed, forward = [], nn.Linear.forward

    def counted(layer, x):
        passed.append(len(x))
        return forward(layer, x)

    monkeypatch.setattr(nn.Linear, "forward", counted)
    return lambda: sum(passed)


def test_quick(quick, monkeypatch, samples):
    small = {name: replace(efficiency.QUICK["mlp"], small_batch=64) for name in efficiency.ORDER}
    monkeypatch.setattr(efficiency, "QUICK", small)
    monkeypatch.setattr(
        efficiency, "peak_mib", lambda name, action, *_, **__: {"plain": 1, "prior": 2, "EG": 7}[action]
    )
    monkeypatch.setattr(
        efficiency, "interleaved", lambda actions, rounds, clock=None: interleaved(actions, rounds, clock=samples)
    )
    rows = quick("efficiency").table.rows
    assert ["one reference after the other" in row[0] for row in rows] == [False, True] * 3
    # One forward pass of the task, and 32 more for EG; X-Gradient shares the task's.
    assert [float(row[3]) for row in rows] == [33] * 6
    assert rows[-2][4] == "130"
    assert rows[-2][5:] == ("2", "7", "3.5", "3.46")


@pytest.mark.long
def test_memory_of_a_step_grows_with_references():
    options = {"quick": True, "threads": 1}
    prior, eg = (peak_mib("mlp", action, 512, 32, **options) for action in ("prior", "EG"))
    assert eg > 4 * prior


def test_a_process_that_fails_is_reported():
    with pytest.raises(AxiogradError, match="invalid choice"):
        peak_mib("nothing", "prior", 2, 1, quick=True, threads=1)


def test_ratios_are_within_rounds():
    assert ratio({"a": [1.0, 20.0, 3.0], "b": [2.0, 10.0, 3.0]}, "a", "b") == 1.0
    rounds = []
    times = interleaved({"a": lambda: None, "b": lambda: None}, 2, said=rounds.append)
    assert rounds == [1, 2]
    assert [len(found) for found in times.values()] == [2, 2]
