"""What the records of the NHANES experiment say: one outcome per model, λ and number of references."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from axiograd.experiments.records import Records


@dataclass(frozen=True)
class Outcome:
    """ROC-AUC of one model by the number of the subsample, and the processor time that it took."""

    name: str
    weight: float
    references: int
    val: Mapping[int, float]
    test: Mapping[int, float]
    seconds: float

    @property
    def n(self) -> int:
        """How many subsamples there are so far."""
        return len(self.test)

    @property
    def mean(self) -> float:
        """Mean test ROC-AUC."""
        return statistics.fmean(self.test.values())

    @property
    def error(self) -> float:
        """Standard error of that mean; 0 for a single subsample."""
        return statistics.stdev(self.test.values()) / math.sqrt(self.n) if self.n > 1 else 0.0

    def over(self, other: Outcome) -> tuple[float, float] | None:
        """Mean of the differences on the subsamples that both have, and its standard error; None if there are none."""
        both = [self.test[i] - other.test[i] for i in self.test if i in other.test]
        if not both:
            return None
        error = statistics.stdev(both) / math.sqrt(len(both)) if len(both) > 1 else 0.0
        return statistics.fmean(both), error


def outcome(records: Records, name: str, weight: float, references: int = 1) -> Outcome | None:
    """All blocks of subsamples that are done, put together; None if there is none."""
    pieces = records.find(model=name, weight=weight, references=references)
    if not pieces:
        return None
    val: dict[int, float] = {}
    test: dict[int, float] = {}
    for piece in pieces:
        first = piece.key["first"]
        val |= {first + i: value for i, value in enumerate(piece.values["val"])}
        test |= {first + i: value for i, value in enumerate(piece.values["test"])}
    return Outcome(name, weight, references, val, test, sum(piece.values["seconds"] for piece in pieces))


def searched(records: Records, name: str) -> dict[float, Outcome]:
    """One outcome for each λ that was tried with one reference or none."""
    weights = sorted({piece.key["weight"] for piece in records.find(model=name, references=1)})
    found = {weight: outcome(records, name, weight) for weight in weights}
    return {weight: one for weight, one in found.items() if one is not None}


def choose(records: Records, name: str) -> Outcome | None:
    """The λ with the best mean validation ROC-AUC on the subsamples that all of them have; None before there is one."""
    found = searched(records, name)
    if not found:
        return None
    common = set.intersection(*(set(one.val) for one in found.values()))
    if not common:
        return max(found.values(), key=lambda one: one.n)
    return max(found.values(), key=lambda one: statistics.fmean(one.val[i] for i in common))
