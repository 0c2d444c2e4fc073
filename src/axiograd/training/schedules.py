"""How the weight λ of a prior changes over the steps of training: callables step -> λ."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from axiograd.errors import ConfigurationError
from axiograd.priors.base import LARGEST_WEIGHT

Schedule: TypeAlias = Callable[[int], float]


@dataclass(frozen=True)
class Constant:
    """λ(t) = value.

    >>> Constant(0.1)(1000)
    0.1
    """

    value: float

    def __call__(self, step: int) -> float:  # noqa: ARG002 (a schedule takes the step)
        return self.value


@dataclass(frozen=True)
class LinearWarmup:
    """λ(t) = start + (value − start)·min(t/steps, 1).

    >>> [LinearWarmup(2.0, steps=4)(t) for t in (0, 1, 4, 9)]
    [0.0, 0.5, 2.0, 2.0]
    """

    value: float
    steps: int
    start: float = 0.0

    def __post_init__(self) -> None:
        _check_steps(self, self.steps)

    def __call__(self, step: int) -> float:
        return self.start + (self.value - self.start) * min(step / self.steps, 1.0)


@dataclass(frozen=True)
class Cosine:
    """λ(t) = end + (start − end)·½(1 + cos(π·min(t/steps, 1))).

    >>> [round(Cosine(1.0, 0.0, steps=4)(t), 3) for t in (0, 1, 2, 4, 9)]
    [1.0, 0.854, 0.5, 0.0, 0.0]
    """

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        _check_steps(self, self.steps)

    def __call__(self, step: int) -> float:
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * min(step / self.steps, 1.0))) / 2


@dataclass(frozen=True)
class Steps:
    """λ(t) = value·factor^⌊t/every⌋.

    >>> [Steps(1.0, factor=10.0, every=3)(t) for t in (0, 2, 3, 6)]
    [1.0, 1.0, 10.0, 100.0]
    """

    value: float
    factor: float
    every: int

    def __post_init__(self) -> None:
        _check_steps(self, self.every)

    def __call__(self, step: int) -> float:
        return self.value * self.factor ** (step // self.every)


def ensure_schedule(weight: float | Schedule) -> Schedule:
    """A number becomes a constant schedule.

    >>> ensure_schedule(3)
    Constant(value=3.0)
    """
    if callable(weight):
        return weight
    try:
        return Constant(float(weight))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"weight={weight!r}: the prior's weight is a number, or a function from the step to a number."
        ) from error


def weight_at(schedule: Schedule, step: int) -> float:
    """λ(step), checked.

    >>> weight_at(Constant(0.5), 7)
    0.5
    """
    weight = float(schedule(step))
    if not abs(weight) <= LARGEST_WEIGHT:
        raise ConfigurationError(
            f"the weight of the prior is {weight} at step {step}, from {schedule!r}; it must be finite in float32."
        )
    return weight


def _check_steps(schedule: object, steps: int) -> None:
    if steps < 1:
        raise ConfigurationError(f"{schedule!r} needs at least one step.")
