"""The work of Figure 1: pieces of one model, one λ, one number of references and a block of subsamples."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from axiograd.datasets import TensorData
from axiograd.experiments.chunks import Average
from axiograd.experiments.item import Plan, Setting, Stage, Work
from axiograd.experiments.nhanes.data import ROWS, load
from axiograd.experiments.nhanes.networks import METHODS
from axiograd.experiments.nhanes.training import EPOCHS, LEARNING_RATE, measure
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
        return self._tested().mean

    @property
    def error(self) -> float:
        """Standard error of that mean; 0 for a single subsample."""
        return self._tested().standard_error or 0.0

    def _tested(self) -> Average:
        return Average.of(list(self.test.values()))

    def over(self, other: Outcome) -> tuple[float, float] | None:
        """Mean of the differences on the subsamples that both have, and its standard error; None if there are none."""
        both = Average.of([self.test[i] - other.test[i] for i in self.test if i in other.test])
        return (both.mean, both.standard_error or 0.0) if both.n else None


def outcome(
    records: Records, name: str, weight: float, references: int = 1, *, further: bool = False
) -> Outcome | None:
    """All blocks of the paper's subsamples that are done, or of the further ones, put together; None without any."""
    pieces = [
        piece
        for piece in records.find(model=name, weight=weight, references=references)
        if (piece.key["first"] >= records.settings["subsamples"]) == further
    ]
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


#: The paper's candidates for λ.
GRID = (0.01, 0.1, 1.0, 10.0, 100.0)
SUBSAMPLES = 200
#: Subsamples after those, of which the search for λ knows nothing, and whom they compare.
FURTHER = 400
COMPARED = ("x-gradient", "eg")
REFERENCES = (1, 2, 4, 8, 16, 32, 64, 128)
#: Subsamples of one piece, and fewer where there are many references: a piece is a minute or a few.
BLOCK = 25
MANY_REFERENCES, SMALL_BLOCK = 32, 5


@dataclass(frozen=True)
class Experiment:
    """The data and the size of the experiment."""

    data: TensorData
    subsamples: int
    references: tuple[int, ...]
    seed: int
    further: int = FURTHER

    @classmethod
    def of(cls, setting: Setting) -> Experiment:
        """A few subsamples of the procedural table for the quick form, else the paper's size."""
        data = load(setting.scale)
        if setting.scale == "quick":
            return cls(data, 4, (1, 2, 4, 8), setting.seed, 4)
        return cls(data, SUBSAMPLES, REFERENCES, setting.seed)

    def settings(self) -> dict[str, Any]:
        """What all pieces share."""
        subjects, features = self.data.inputs.shape
        return {
            "subjects": subjects,
            "features": features,
            "subsamples": self.subsamples,
            "rows": ROWS,
            "epochs": EPOCHS,
            "learning_rate": LEARNING_RATE,
            "grid": list(GRID),
            "seed": self.seed,
        }

    def pieces(self, name: str, weight: float, references: int = 1, *, further: bool = False) -> Iterator[Work]:
        """All blocks of subsamples of one model: the paper's, or those after them."""
        block = BLOCK if references < MANY_REFERENCES else SMALL_BLOCK
        # Passes over the network: forward, back, tangents, products; EG has those of the task, too.
        passes = {None: 3, "expected-gradients": 3 + 4 * references}.get(METHODS[name].attribution, 4)
        start, stop = (self.subsamples, self.subsamples + self.further) if further else (0, self.subsamples)
        for first in range(start, stop, block):
            count = min(block, stop - first)
            yield Work(
                {"model": name, "weight": weight, "references": references, "first": first, "count": count},
                partial(
                    measure,
                    self.data,
                    range(first, first + count),
                    name=name,
                    weight=weight,
                    references=references,
                    seed=self.seed,
                ),
                cost=float(count * passes),
            )

    def search(self, names: Sequence[str]) -> Stage:
        """Every λ for every model that has one."""

        def stage(_: Records) -> list[Work]:
            settings = [(n, w) for n in names for w in (GRID if METHODS[n].attribution else (0.0,))]
            return [piece for name, weight in settings for piece in self.pieces(name, weight)]

        return stage

    def repeat(self, records: Records) -> list[Work]:
        """X-Gradient and EG(1) on further subsamples, with the λ that the first ones chose."""
        chosen = [one for name in COMPARED if (one := choose(records, name)) is not None]
        return [piece for one in chosen for piece in self.pieces(one.name, one.weight, further=True)]

    def more_references(self, references: int) -> Stage:
        """EG with the λ that was best with one reference."""

        def stage(records: Records) -> list[Work]:
            chosen = choose(records, "eg")
            return [] if chosen is None else list(self.pieces("eg", chosen.weight, references))

        return stage


def left(setting: Setting) -> Plan:
    """All six models with the search for λ, then two of them on further subsamples."""
    experiment = Experiment.of(setting)
    return Plan(experiment.data.name, experiment.settings(), (experiment.search(tuple(METHODS)), experiment.repeat))


def right(setting: Setting) -> Plan:
    """X-Gradient and EG(1) with their search for λ, then EG with ever more references."""
    experiment = Experiment.of(setting)
    more = (experiment.more_references(n) for n in experiment.references if n > 1)
    settings = experiment.settings() | {"references": list(experiment.references)}
    return Plan(experiment.data.name, settings, (experiment.search(COMPARED), *more))
