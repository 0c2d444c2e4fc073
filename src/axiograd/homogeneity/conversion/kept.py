"""What a conversion keeps of a model's answers, on examples that it was not fitted to."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from axiograd._calls import class_scores, is_floating, read_leaves, rows_at
from axiograd.errors import TargetError
from axiograd.homogeneity.conversion.edits import running

#: With fewer examples nothing can be said, and a converted model that keeps less of the answers is not ready for use.
LEAST, ENOUGH = 32, 0.95
#: At least so many examples judge, and otherwise a quarter of them.
_JUDGES = 16
#: With fewer than these held out by a calibration, nothing is counted.
_FEWEST = 8
#: Examples that go through a model together.
_ROWS = 20


@dataclass(frozen=True)
class Kept:
    """How many of the held-out examples get the class that they got before; for other outputs, how equal they are.

    >>> print(Kept(31, 32)), Kept(31, 32).share
    31 of 32 held out
    (None, 0.96875)
    """

    #: Equal top classes; None for outputs that are not class scores, and where nothing was measured.
    same: int | None = None
    #: Examples that judged, none of which the conversion was fitted to.
    of: int = 0
    #: Concordance correlation of outputs that are not class scores: 1 only if they are equal.
    correlation: float | None = None
    #: Why nothing was measured.
    why: str = ""

    @property
    def share(self) -> float | None:
        """Share of equal predictions, or the correlation; None where nothing was measured."""
        return self.correlation if self.same is None else self.same / self.of

    @property
    def enough(self) -> bool:
        return self.share is not None and self.share >= ENOUGH

    def __str__(self) -> str:
        if self.same is not None:
            return f"{self.same} of {self.of} held out"
        if self.correlation is not None:
            return f"concordance {self.correlation:.3f} on {self.of} held out"
        return f"not measured ({self.why})"


@dataclass(frozen=True)
class Examples:
    """Inputs of a model, with its further arguments."""

    inputs: Any
    additional: Any = None

    @property
    def count(self) -> int:
        return next((len(leaf) for leaf in tree_leaves(self.inputs) if is_floating(leaf)), 0)

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
        """What the model returns in eval mode, a row per example: [n, classes], or [n, 1, values] of other outputs."""
        found = []
        with running(model):
            for start in range(0, self.count, _ROWS):
                part = self.rows(slice(start, start + _ROWS))
                call = read_leaves(part.inputs, additional_forward_args=part.additional)
                output = model(*call.args, **call.kwargs)
                try:
                    scores = class_scores(output, part.count)
                except TargetError:
                    first = next(leaf for leaf in tree_leaves(output) if is_floating(leaf))
                    scores = first.reshape(part.count, 1, -1)
                found.append(scores if scores.shape[1] > 1 else scores.reshape(part.count, 1, -1))
        return torch.cat(found).float()


class Judge:
    """Compares answers of a converted model with those of the original, on examples held out."""

    def __init__(self, model: nn.Module, held_out: Examples, count: int) -> None:
        self.examples, self.why = held_out, ""
        if count < LEAST or held_out.count < _FEWEST:
            few = f"{count} {'example' if count == 1 else 'examples'}; {LEAST} or more are needed"
            self.why = few if count < LEAST else f"{held_out.count} of {count} examples are held out, too few to tell"
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
        return Kept(None, n, _concordance(self.before.double(), after.double()))


def _concordance(a: Tensor, b: Tensor) -> float:
    """2·cov(a, b) / (var a + var b + (mean a − mean b)²) (Lin, 1989): 1 for equal values alone.

    >>> a = torch.tensor([1.0, 2.0, 3.0])
    >>> _concordance(a, a), round(_concordance(a, a + 1), 3)
    (1.0, 0.571)
    """
    covariance = ((a - a.mean()) * (b - b.mean())).mean()
    spread = a.var(correction=0) + b.var(correction=0) + (a.mean() - b.mean()).square()
    return float((2 * covariance / spread).nan_to_num())
