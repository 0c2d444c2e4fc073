"""Figure 1 and its tables beside the paper's numbers, and sentences that are computed from the records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from axiograd.experiments.item import Cell, Table
from axiograd.experiments.nhanes.further import Further
from axiograd.experiments.nhanes.networks import METHODS
from axiograd.experiments.nhanes.plan import Outcome, choose, outcome, searched
from axiograd.experiments.records import Records, read
from axiograd.report import canvas
from axiograd.report.colours import LINES

#: Mean test ROC-AUC of Figure 1 (left): the authors' published result files of the sparsity experiment, but for RRR and
#: Grad, which are read off their figure.
PAPER_LEFT: Mapping[str, float] = {
    "unregularised": 0.7077,
    "unregularised-x": 0.7056,
    "rrr": 0.715,
    "grad": 0.717,
    "eg": 0.7486,
    "x-gradient": 0.7673,
}
#: The λ that the paper's search found: its appendix, "Training with attribution priors".
PAPER_WEIGHTS: Mapping[str, float] = {"rrr": 0.1, "grad": 0.1, "eg": 1.0, "x-gradient": 1.0}
#: Figure 1 (right), by the number of references: the authors' published result files.
PAPER_RIGHT: Mapping[int, float] = {
    1: 0.7486,
    2: 0.7518,
    4: 0.7603,
    8: 0.7607,
    16: 0.7640,
    32: 0.7679,
    64: 0.7687,
    128: 0.7722,
}
#: Subjects and features of the paper's file.
PAPER_DATA = (13_442, 118)


def left_outcomes(records: Records) -> list[Outcome]:
    """The chosen λ of each model that has results, in the order of the figure."""
    found = (choose(records, name) for name in METHODS)
    return [one for one in found if one is not None]


def right_outcomes(records: Records) -> tuple[Outcome | None, list[Outcome]]:
    """X-Gradient, and EG by the number of references, as far as there are results."""
    one = choose(records, "eg")
    if one is None:
        return choose(records, "x-gradient"), []
    more = (outcome(records, "eg", one.weight, n) for n in records.settings["references"] if n > 1)
    return choose(records, "x-gradient"), [one, *(eg for eg in more if eg is not None)]


def is_the_papers_survey(records: Records) -> bool:
    """Whether the paper's numbers are about this survey."""
    return "NHANES" in records.data


def left_table(records: Records) -> Table:
    """One row per model: ours, the paper's, and the difference."""
    rows = [_row(records, METHODS[one.name].label, one, PAPER_LEFT[one.name]) for one in left_outcomes(records)]
    return Table(_header("model"), tuple(rows), " ".join(left_sentences(records)))


def right_table(records: Records) -> Table:
    """X-Gradient, then one row per number of references."""
    x_gradient, by_references = right_outcomes(records)
    rows = [] if x_gradient is None else [_row(records, "X-Gradient", x_gradient, PAPER_LEFT["x-gradient"])]
    rows += [_row(records, f"EG({one.references})", one, PAPER_RIGHT.get(one.references)) for one in by_references]
    return Table(_header("prior on"), tuple(rows), " ".join(right_sentences(records)))


def left_sentences(records: Records) -> Iterator[str]:
    """What the left panel says, and how it differs from the paper's."""
    s, found = records.settings, {one.name: one for one in left_outcomes(records)}
    yield from _about(records, list(found.values()))
    pairs = (("x-gradient", "eg"), ("x-gradient", "unregularised-x"), ("eg", "grad"))
    for better, worse in (*pairs, ("unregularised-x", "unregularised")):
        if better in found and worse in found:
            gap = f" (paper: {PAPER_LEFT[better] - PAPER_LEFT[worse]:+.4f})"
            theirs = gap if is_the_papers_survey(records) else ""
            yield _difference(METHODS[better].label, found[better], METHODS[worse].label, found[worse], theirs)
    if further := Further.of(records):
        yield further.sentence()
    if found and is_the_papers_survey(records):
        ours, papers = sorted(found, key=lambda n: found[n].mean), sorted(found, key=PAPER_LEFT.__getitem__)
        same = "as in the paper" if ours == papers else f"in the paper {_order(papers)}"
        yield f"From worst to best: {_order(ours)}; {same}."
        gaps = [found[name].mean - PAPER_LEFT[name] for name in found]
        yield "The paper's numbers are of its authors' result files, those of RRR and Grad are read off the figure."
        yield f"Ours minus the paper's lie between {min(gaps):+.4f} and {max(gaps):+.4f}."
        through = [name for name in PAPER_WEIGHTS if name in found and _tried(records, name) >= len(s["grid"])]
        others = [
            f"{METHODS[name].label} {found[name].weight:g} instead of {PAPER_WEIGHTS[name]:g}"
            for name in through
            if found[name].weight != PAPER_WEIGHTS[name]
        ]
        if through:
            found_others = f"The search finds other λ than the paper's: {', '.join(others)}."
            yield found_others if others else f"The search finds the paper's λ for {_list(through)}."


def right_sentences(records: Records) -> Iterator[str]:
    """When EG catches up with X-Gradient, at what price, and in the paper."""
    x_gradient, by_references = right_outcomes(records)
    yield from _about(records, [*by_references, *([x_gradient] if x_gradient else [])])
    if x_gradient is None or not by_references:
        return
    overs = {one.references: over for one in by_references if (over := one.over(x_gradient)) is not None}
    if not overs:
        return
    ahead = [n for n, (gap, _) in overs.items() if gap >= 0]
    reached = f"reaches X-Gradient with {min(ahead)}" if ahead else f"does not reach X-Gradient with up to {max(overs)}"
    paper = ""
    if is_the_papers_survey(records):
        paper = f" (paper: with {min(n for n, auc in PAPER_RIGHT.items() if auc >= PAPER_LEFT['x-gradient'])})"
    yield f"EG {reached} references, on the subsamples that both have{paper}."
    behind = [n for n, (gap, error) in overs.items() if gap < -2 * error]
    if behind:
        yield f"It is behind by more than two standard errors of the difference with {max(behind)}, not with more."
    for one in (by_references[0], by_references[-1]) if len(by_references) > 1 else by_references:
        theirs = ""
        if is_the_papers_survey(records) and one.references in PAPER_RIGHT:
            theirs = f" (paper: {PAPER_RIGHT[one.references] - PAPER_LEFT['x-gradient']:+.4f})"
        yield _difference(f"EG({one.references})", one, "X-Gradient", x_gradient, theirs)
    beside = records.path.parents[1] / "fig1-left" / records.path.name
    if beside.is_file() and (further := Further.of(read(beside))):
        yield further.sentence()
    last = by_references[-1]
    price = (last.seconds / last.n) / (x_gradient.seconds / x_gradient.n)
    yield (
        f"A model with EG({last.references}) took {price:.1f} times the processor time of one with X-Gradient, "
        "its test included."
    )


def incomplete(records: Records, outcomes: Sequence[Outcome]) -> list[str]:
    """Who has fewer subsamples than the experiment asks for, or a search for λ that is not through."""
    wanted, grid = records.settings["subsamples"], len(records.settings["grid"])
    fewer = [f"{_name(one)} on {one.n} of {wanted} subsamples" for one in outcomes if one.n < wanted]
    for one in outcomes:
        done = _tried(records, one.name)
        if one.references == 1 and METHODS[one.name].attribution and done < grid:
            fewer.append(f"{_name(one)} with {done} of {grid} λ tried on all")
    return fewer


def _about(records: Records, outcomes: Sequence[Outcome]) -> Iterator[str]:
    s = records.settings
    yield (
        f"Mean test ROC-AUC over {s['subsamples']} subsamples ({s['rows']} rows to train on, {s['rows']} to validate "
        f"on) of {records.data}, {s['subjects']} rows × {s['features']} features, with the standard error of the mean; "
        "differences are paired, subsample by subsample."
    )
    if is_the_papers_survey(records) and (s["subjects"], s["features"]) != PAPER_DATA:
        yield f"The paper's file has {PAPER_DATA[0]} × {PAPER_DATA[1]}."
    if fewer := incomplete(records, outcomes):
        yield f"Not complete: {', '.join(fewer)}."


def _header(first: str) -> tuple[str, ...]:
    return (first, "λ", "ROC-AUC", "standard error", "subsamples", "paper", "ours − paper")


def _row(records: Records, label: str, one: Outcome, paper: float | None) -> tuple[Cell, ...]:
    weight = f"{one.weight:g}" if one.weight else None
    theirs = paper if is_the_papers_survey(records) else None
    gap = None if theirs is None else round(one.mean - theirs, 4)
    return (label, weight, round(one.mean, 4), round(one.error, 4), one.n, theirs, gap)


def _difference(name: str, one: Outcome, other_name: str, other: Outcome, paper: str) -> str:
    over = one.over(other)
    if over is None:
        return f"{name} and {other_name} have no subsample in common yet."
    return f"{name} minus {other_name}: {over[0]:+.4f} ± {over[1]:.4f}{paper}."


def _tried(records: Records, name: str) -> int:
    """How many λ have been tried on all subsamples."""
    return sum(found.n >= records.settings["subsamples"] for found in searched(records, name).values())


def _list(names: Sequence[str]) -> str:
    return ", ".join(METHODS[name].label for name in names)


def _order(names: Sequence[str]) -> str:
    return " < ".join(METHODS[name].label for name in names)


def _name(one: Outcome) -> str:
    return f"EG({one.references})" if one.name == "eg" else METHODS[one.name].label


#: The paper's error bars.
ERRORS = 2
HOLLOW: dict[str, Any] = {"linestyle": "none", "marker": "D", "markersize": 5, "markerfacecolor": "white"}


def left_figure(records: Records) -> Any:
    """A bar per model with ± 2 standard errors, and how the last two differ on further subsamples."""
    further = Further.of(records)
    figure = canvas.new_figure(9.4 if further else 5.2, 3.2)
    if further:
        axes, beside = figure.subplots(1, 2, width_ratios=(5.2, 4.2))
        further.draw(beside, ERRORS)
    else:
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
        margin = max(0.1 * (max(shown) - min(shown)), 0.002)
        axes.set_ylim(min(shown) - margin, max(shown) + margin)
    notes = [records.data, f"{records.settings['subsamples']} subsamples", f"± {ERRORS} standard errors of the mean"]
    canvas.note_figure(figure, notes + ([f"incomplete: {', '.join(fewer)}"] if fewer else []))
