"""What a conversion keeps of a model's answers, on examples that it was not fitted to."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from axiograd._calls import class_scores, is_floating, read_call, rows_at
from axiograd.errors import TargetError
from axiograd.homogeneity.conversion.edits import running

#: With fewer examples nothing can be said, and a converted model that keeps less of the answers is not ready for use.
LEAST, ENOUGH = 32, 0.95
#: At least so many examples judge, and otherwise a quarter of them.
_JUDGES = 16
#: Examples that go through a model together.
_ROWS = 20


@dataclass(frozen=True)
class Kept:
    """How many of the held-out examples get the class that they got before; for other outputs, the correlation.

    >>> print(Kept(31, 32)), Kept(31, 32).share
    31 of 32 held out
    (None, 0.96875)
    """

    #: Equal top classes; None for outputs that are no classes, and where nothing was measured.
    same: int | None = None
    #: Examples that judged, none of which the conversion was fitted to.
    of: int = 0
    #: Of the outputs before and after, where they are no classes.
    correlation: float | None = None
    #: Why nothing was measured.
    why: str = ""

    @property
    def share(self) -> float | None:
        """Of equal answers, or the correlation; None where nothing was measured."""
        return self.correlation if self.same is None else self.same / self.of

    @property
    def enough(self) -> bool:
        return self.share is not None and self.share >= ENOUGH

    def __str__(self) -> str:
        if self.same is not None:
            return f"{self.same} of {self.of} held out"
        if self.correlation is not None:
            return f"correlation {self.correlation:.3f} on {self.of} held out"
        return f"not measured ({self.why})"


@dataclass(frozen=True)
class Examples:
    """Inputs of a model, with its further arguments."""

    inputs: Any
    additional: Any = None

    @property
    def count(self) -> int:
        return read_call(self.inputs, self.additional, check=False).batch

    def rows(self, chosen: Tensor | slice) -> "Examples":
        take = partial(rows_at, samples=chosen, batch=self.count)
        return Examples(*tree_map_only(Tensor, take, (self.inputs, self.additional)))

    def split(self) -> tuple["Examples", "Examples"]:
        """Those to fit to, and those that judge, spread evenly; of fewer than `LEAST`, all and none."""
        n = self.count
        if n < LEAST:
            return self, self.rows(slice(0))
        held = torch.zeros(n, dtype=torch.bool)
        held[torch.linspace(0, n - 1, max(_JUDGES, n // 4)).round().long()] = True
        return self.rows(~held), self.rows(held)

    @torch.no_grad()
    def outputs(self, model: nn.Module) -> Tensor:
        """What the model returns in eval mode, a row per example; three dimensions say that these are no classes."""
        found = []
        with running(model):
            for start in range(0, self.count, _ROWS):
                part = self.rows(slice(start, start + _ROWS))
                call = read_call(part.inputs, part.additional)
                output = call.call(model, call.features)
                try:
                    scores = class_scores(output, call.batch)
                except TargetError:
                    first = next(leaf for leaf in tree_leaves(output) if is_floating(leaf))
                    scores = first.reshape(call.batch, 1, -1)
                found.append(scores if scores.shape[1] > 1 else scores.reshape(call.batch, 1, -1))
        return torch.cat(found).float()


class Judge:
    """Compares answers of a converted model with those of the original, on examples held out."""

    def __init__(self, model: nn.Module, held_out: Examples, count: int) -> None:
        self.examples, self.why = held_out, ""
        if count < LEAST or not held_out.count:
            few = f"{count} {'example' if count == 1 else 'examples'}; {LEAST} or more are needed"
            self.why = few if count < LEAST else f"none of {count} examples is held out"
            return
        self.before = held_out.outputs(model)
        if self._are_classes and len(classes := self.before.argmax(1).unique()) == 1:
            self.why = f"all {len(self.before)} held-out examples get class {int(classes)}"
        elif not self._are_classes and not bool(self.before.std() > 0):
            self.why = "all examples get the same output"

    @property
    def _are_classes(self) -> bool:
        return self.before.dim() == 2  # noqa: PLR2004

    def __call__(self, model: nn.Module) -> Kept:
        if self.why:
            return Kept(why=self.why)
        after, n = self.examples.outputs(model), len(self.before)
        if self._are_classes:
            return Kept(int((after.argmax(1) == self.before.argmax(1)).sum()), n)
        both = torch.stack([self.before.flatten(), after.flatten()]).double()
        return Kept(None, n, float(torch.corrcoef(both)[0, 1].nan_to_num()))
