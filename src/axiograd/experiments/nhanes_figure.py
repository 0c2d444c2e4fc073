"""Figure 1 in the paper's layout, the paper's own values as hollow marks beside ours."""

from __future__ import annotations

import math
from typing import Any

from axiograd.experiments.nhanes_methods import METHODS
from axiograd.experiments.nhanes_text import (
    PAPER_LEFT,
    PAPER_RIGHT,
    incomplete,
    is_the_papers_survey,
    left_outcomes,
    right_outcomes,
)
from axiograd.experiments.records import Records
from axiograd.report import _canvas as canvas
from axiograd.report.colours import LINES

#: The paper's error bars.
ERRORS = 2
HOLLOW: dict[str, Any] = {"linestyle": "none", "marker": "D", "markersize": 5, "markerfacecolor": "white"}


def left_figure(records: Records) -> Any:
    """A bar per model with ± 2 standard errors."""
    figure = canvas.new_figure(5.2, 3.2)
    axes = figure.subplots()
    outcomes = left_outcomes(records)
    places = range(len(outcomes))
    colours = [LINES[1] if one.name == "x-gradient" else LINES[0] for one in outcomes]
    means, errors = [one.mean for one in outcomes], [ERRORS * one.error for one in outcomes]
    axes.bar(places, means, width=0.62, color=colours, yerr=errors, error_kw={"elinewidth": 1, "capsize": 3})
    shown = [m - e for m, e in zip(means, errors, strict=True)] + [m + e for m, e in zip(means, errors, strict=True)]
    if is_the_papers_survey(records):
        theirs = [PAPER_LEFT[one.name] for one in outcomes]
        axes.plot([i + 0.2 for i in places], theirs, **HOLLOW, color=canvas.INK, label="paper")
        shown += theirs
        canvas.legend(axes, loc="upper left")
    axes.set_xticks(list(places), [METHODS[one.name].label.replace(" w/o", "\nw/o") for one in outcomes])
    _finish(figure, axes, records, shown, incomplete(records, outcomes))
    return figure


def right_figure(records: Records) -> Any:
    """EG over the number of references, and X-Gradient's line, each with ± 2 standard errors."""
    figure = canvas.new_figure(5.2, 3.2)
    axes = figure.subplots()
    x_gradient, outcomes = right_outcomes(records)
    shown: list[float] = []
    if x_gradient is not None:
        mean, error = x_gradient.mean, ERRORS * x_gradient.error
        axes.axhline(mean, color=LINES[1], linewidth=1.4, label="X-Gradient (1 gradient)")
        axes.axhspan(mean - error, mean + error, color=LINES[1], alpha=0.15, linewidth=0)
        shown += [mean - error, mean + error]
    # Places by the logarithm, on a plain axis: a logarithmic one cannot be empty.
    counts = [math.log2(one.references) for one in outcomes]
    means, errors = [one.mean for one in outcomes], [ERRORS * one.error for one in outcomes]
    axes.errorbar(counts, means, yerr=errors, color=LINES[0], marker="o", markersize=4, capsize=3, label="EG")
    shown += [m - e for m, e in zip(means, errors, strict=True)] + [m + e for m, e in zip(means, errors, strict=True)]
    if is_the_papers_survey(records):
        theirs = {math.log2(one.references): PAPER_RIGHT[one.references] for one in outcomes}
        axes.plot(list(theirs), list(theirs.values()), **HOLLOW, color=LINES[0], label="EG, paper")
        axes.axhline(PAPER_LEFT["x-gradient"], color=LINES[1], linewidth=1, linestyle=":", label="X-Gradient, paper")
        shown += [*theirs.values(), PAPER_LEFT["x-gradient"]]
    wanted = records.settings["subsamples"]
    labels = [f"{one.references}" + (f"\n{one.n} of\n{wanted}" if one.n < wanted else "") for one in outcomes]
    axes.set_xticks(counts, labels)
    canvas.legend(axes, loc="lower right")
    fewer = incomplete(records, [*outcomes, *([x_gradient] if x_gradient else [])])
    _finish(figure, axes, records, shown, fewer, x_label="reference samples of EG")
    return figure


def _finish(figure: Any, axes: Any, records: Records, shown: list[float], fewer: list[str], x_label: str = "") -> None:
    canvas.plain_chart(axes, x_label=x_label, y_label="average ROC-AUC")
    if shown:
        room = max(0.1 * (max(shown) - min(shown)), 0.002)
        axes.set_ylim(min(shown) - room, max(shown) + room)
    notes = [records.data, f"{records.settings['subsamples']} subsamples", f"± {ERRORS} standard errors of the mean"]
    canvas.note_figure(figure, notes + ([f"incomplete: {', '.join(fewer)}"] if fewer else []))
