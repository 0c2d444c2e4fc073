import math

import pytest

from axiograd.errors import ConfigurationError
from axiograd.training.schedules import Constant, Cosine, LinearWarmup, Steps, ensure_schedule, weight_at


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Constant(0.3), [0.3, 0.3, 0.3, 0.3]),
        (LinearWarmup(2.0, steps=10), [0.0, 1.0, 2.0, 2.0]),
        (LinearWarmup(2.0, steps=10, start=1.0), [1.0, 1.5, 2.0, 2.0]),
        (Cosine(1.0, 0.2, steps=10), [1.0, 0.6, 0.2, 0.2]),
        (Steps(1.0, factor=0.1, every=5), [1.0, 0.1, 0.01, 0.001]),
    ],
)
def test_values_at_0_5_10_15(schedule, expected) -> None:
    assert [schedule(step) for step in (0, 5, 10, 15)] == pytest.approx(expected)


def test_a_number_or_any_callable_is_a_schedule() -> None:
    assert ensure_schedule(2)(100) == 2.0
    assert ensure_schedule(lambda step: step / 4)(2) == 0.5


@pytest.mark.parametrize("make", [lambda: LinearWarmup(1.0, 0), lambda: Cosine(1.0, 0.0, -1), lambda: Steps(1, 2, 0)])
def test_no_steps_are_refused(make) -> None:
    with pytest.raises(ConfigurationError, match="at least one step"):
        make()


def test_a_weight_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="nan at step 3"):
        weight_at(lambda step: math.nan, 3)


@pytest.mark.parametrize("weight", [None, "large", [1.0]])
def test_a_weight_that_is_no_number_is_refused(weight: object) -> None:
    with pytest.raises(ConfigurationError, match="the prior's weight is a number, or a function"):
        ensure_schedule(weight)
