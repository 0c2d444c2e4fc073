"""Figure 1, right: how many references Expected Gradients needs to catch up with X-Gradient, on NHANES I."""

import numpy as np
import pandas as pd

from experiments import fig1_left, lab, nhanes

#: Mean test ROC-AUC by the number of references: the authors' result files.
PAPER = {1: 0.7486, 2: 0.7518, 4: 0.7603, 8: 0.7607, 16: 0.7640, 32: 0.7679, 64: 0.7687, 128: 0.7722}
PAPER_X = fig1_left.PAPER["X-Gradient w/o bias"]
CAUGHT_UP = min(n for n, auc in PAPER.items() if auc >= PAPER_X)


def run(*, quick: bool) -> lab.Result:
    numbers, references = (tuple(range(4)), (2, 4)) if quick else (tuple(range(200)), tuple(PAPER)[1:])
    found = pd.concat([nhanes.searched(model, numbers, quick) for model in (fig1_left.X, fig1_left.EG)])
    weight = float(nhanes.chosen(found, fig1_left.EG).name)
    more = [nhanes.measured(fig1_left.EG, weight, n, numbers, quick) for n in references]
    return result(pd.concat([found, *more]), nhanes.described(quick))


def result(found: pd.DataFrame, data: str) -> lab.Result:
    ours = nhanes.chosen(found, fig1_left.X)
    counts = sorted(found["references"].unique())
    by_references = {n: nhanes.chosen(found, fig1_left.EG, n) for n in counts}
    lines = [line("X-Gradient", ours, PAPER_X)]
    lines += [line(f"EG({n})", test, PAPER[n]) for n, test in by_references.items()]
    gaps = {n: nhanes.paired(test, ours) for n, test in by_references.items()}
    behind = max((n for n, (gap, error) in gaps.items() if gap < -2 * error), default=0)
    ahead = next((n for n, (gap, _) in gaps.items() if gap >= 0), None)
    caught = min((n for n in counts if n > behind), default=None)
    said = "Does not reproduce" if not behind else "Reproduces"
    said = "In part" if said == "Reproduces" and caught is not None and caught < CAUGHT_UP else said
    reached = "is ahead with none" if ahead is None else f"is ahead from {ahead} ({fig1_left.signed(*gaps[ahead])})"
    verdict = (
        f"{said}: Expected Gradients is behind X-Gradient by more than two standard errors with up to {behind} "
        f"references, and {reached}; in the paper from {CAUGHT_UP}."
    )
    note = (
        "As the left of Figure 1, with the λ that is best with one reference. X-Gradient costs as much as one "
        "reference of EG."
    )
    table = pd.DataFrame(lines)
    title, seed = "Figure 1 (right): EG with ever more references, NHANES I", "the subsample's number is its seed"
    return lab.Result(title, table, verdict, note, data, seed, draw(table, counts))


def line(name: str, test: pd.Series, paper: float) -> dict[str, object]:
    mean, error = lab.mean(test)
    found = {"prior on": name, "λ": f"{test.name:g}", "ROC-AUC": mean, "ROC-AUC ±": error, "subsamples": len(test)}
    return found | {"paper": str(paper), "ours − paper": f"{mean - paper:+.4f}"}


def draw(table: pd.DataFrame, counts: list[int]):
    """EG over the number of references and X-Gradient's line, each with two standard errors."""
    figure, (axes,) = lab.figure(5.2, 3.2)
    x, eg = table.iloc[0], table.iloc[1:]
    colour, other = lab.COLOURS["strict X"], lab.COLOURS["regular"]
    axes.axhline(x["ROC-AUC"], color=colour, label="X-Gradient (1 gradient)")
    axes.axhspan(x["ROC-AUC"] - 2 * x["ROC-AUC ±"], x["ROC-AUC"] + 2 * x["ROC-AUC ±"], color=colour, alpha=0.15)
    axes.axhline(PAPER_X, color=colour, linewidth=1, linestyle=":", label="X-Gradient, paper")
    places = np.log2(counts)
    axes.errorbar(places, eg["ROC-AUC"], 2 * eg["ROC-AUC ±"], fmt="o-", color=other, capsize=3, label="EG")
    axes.plot(places, eg["paper"].astype(float), "D", color=other, markerfacecolor="white", label="EG, paper")
    axes.set_xticks(places, [str(n) for n in counts])
    axes.set_xlabel("reference samples of EG", fontsize=8)
    axes.set_ylabel("mean ROC-AUC, ± 2 standard errors", fontsize=8)
    axes.legend(loc="lower right", fontsize=8, frameon=False)
    return figure
