"""X-Gradient against EG(1) on further subsamples: how much of a difference is the draw of the subsamples."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from axiograd.experiments.chunks import Average
from axiograd.experiments.nhanes.plan import COMPARED, Outcome, choose, outcome
from axiograd.experiments.records import Records
from axiograd.report import canvas
from axiograd.report.colours import LINES

#: Subsamples in a block of which a mean is shown.
SHOWN = 50


@dataclass(frozen=True)
class Further:
    """Both models on the further subsamples, and ROC-AUC of X-Gradient − EG(1) by the number of the subsample."""

    ours: Outcome
    theirs: Outcome
    first: dict[int, float]
    gaps: dict[int, float]

    @classmethod
    def of(cls, records: Records) -> Further | None:
        """None where a model has not been run on any."""
        chosen = [one for name in COMPARED if (one := choose(records, name)) is not None]
        more = [two for one in chosen if (two := outcome(records, one.name, one.weight, further=True)) is not None]
        if len(more) < len(COMPARED):
            return None
        first, gaps = (
            {i: ours.test[i] - theirs.test[i] for i in ours.test if i in theirs.test} for ours, theirs in (chosen, more)
        )
        return cls(more[0], more[1], first, gaps) if gaps else None

    @property
    def fresh(self) -> Average:
        """Of the further subsamples alone."""
        return Average.of(list(self.gaps.values()))

    @property
    def all(self) -> Average:
        """With those that the search for λ has seen."""
        return Average.of([*self.first.values(), *self.gaps.values()])

    def blocks(self) -> dict[int, Average]:
        """The difference by the first number of a block."""
        both = self.first | self.gaps
        return {
            start: Average.of([both[i] for i in range(start, start + SHOWN) if i in both])
            for start in range(0, max(both) + 1, SHOWN)
        }

    def sentence(self) -> str:
        """What the further subsamples say, and how far apart blocks of them are."""
        means = [block.mean for block in self.blocks().values()]
        spread = ""
        if len(means) > 1:
            errors = [block.standard_error or 0.0 for block in self.blocks().values()]
            spread = (
                f" In blocks of {SHOWN} it lies between {min(means):+.4f} and {max(means):+.4f}: a standard deviation "
                f"of {statistics.stdev(means):.4f}, where the errors of the blocks alone make one of "
                f"{statistics.fmean(error**2 for error in errors) ** 0.5:.4f}."
            )
        return (
            f"On {self.fresh.n} further subsamples, from number {min(self.gaps)} on, with the λ that the first "
            f"{len(self.first)} chose: X-Gradient {self.ours.mean:.4f}, EG(1) {self.theirs.mean:.4f}, difference "
            f"{signed(self.fresh)}; on all {self.all.n} {signed(self.all)}.{spread}"
        )

    def draw(self, axes: Any, errors: float) -> None:
        """A point per block, and the means of the two parts."""
        blocks = self.blocks()
        style = {"marker": "o", "markersize": 4, "capsize": 3, "linestyle": "none", "elinewidth": 1}
        for part, colour, name in ((self.first, canvas.QUIET, "first"), (self.gaps, LINES[1], "further")):
            starts = [start for start in blocks if start in part]
            whole = Average.of(list(part.values()))
            axes.errorbar(
                [start + SHOWN / 2 for start in starts],
                [blocks[start].mean for start in starts],
                yerr=[errors * (blocks[start].standard_error or 0.0) for start in starts],
                color=colour,
                **style,
            )
            label = f"{name} {len(part)}: {signed(whole)}"
            axes.plot([min(part), max(part) + 1], [whole.mean] * 2, color=colour, linewidth=1.4, label=label)
        axes.axhline(0, color=canvas.INK, linewidth=0.8)
        canvas.plain_chart(axes, x_label=f"subsample, in blocks of {SHOWN}", y_label="X-Gradient − EG(1)")
        axes.set_ylim(top=axes.get_ylim()[1] * 1.35)  # space for the legend
        canvas.legend(axes, loc="upper right")


def signed(found: Average) -> str:
    """A difference with its standard error.

    >>> signed(Average.of([0.01, 0.03]))
    '+0.0200 ± 0.0100'
    """
    return f"{found.mean:+.4f} ± {found.standard_error or 0.0:.4f}"
