"""Figure 1, left: ROC-AUC on NHANES I without a prior, and with one for sparse attributions of four kinds."""

import pandas as pd

from experiments import lab, nhanes

#: Mean test ROC-AUC: the authors' result files of the sparsity experiment; RRR and Grad are read off their figure.
PAPER = {
    "Unreg": 0.7077,
    "Unreg w/o bias": 0.7056,
    "RRR": 0.715,
    "Grad": 0.717,
    "EG": 0.7486,
    "X-Gradient w/o bias": 0.7673,
}
X, EG = "X-Gradient w/o bias", "EG"
PAPER_GAP = PAPER[X] - PAPER[EG]
#: Subsamples in a block of which a mean is shown.
BLOCK = 50


def run(*, quick: bool) -> lab.Result:
    first, further = (4, 8) if quick else (200, 600)
    found = pd.concat([nhanes.searched(model, tuple(range(first)), quick) for model in nhanes.MODELS])
    # X-Gradient and EG once more, on subsamples of which the search for λ knows nothing.
    weights = {model: float(nhanes.chosen(found, model).name) for model in (X, EG)}
    more = [nhanes.measured(model, weight, 1, tuple(range(first, further)), quick) for model, weight in weights.items()]
    return result(found, pd.concat(more), nhanes.described(quick))


def result(found: pd.DataFrame, more: pd.DataFrame, data: str) -> lab.Result:
    chosen = {model: nhanes.chosen(found, model) for model in nhanes.MODELS}
    lines = []
    for model, test in chosen.items():
        mean, error = lab.mean(test)
        line = {"model": model, "λ": f"{test.name:g}" if test.name else "", "ROC-AUC": mean, "ROC-AUC ±": error}
        lines.append(
            line | {"subsamples": len(test), "paper": str(PAPER[model]), "ours − paper": f"{mean - PAPER[model]:+.4f}"}
        )
    gaps = chosen[X] - chosen[EG]
    fresh = more[more["model"] == X].set_index("subsample")["test"]
    fresh -= more[more["model"] == EG].set_index("subsample")["test"]
    gap, error = lab.mean(fresh)
    bias, bias_error = nhanes.paired(chosen["Unreg w/o bias"], chosen["Unreg"])
    said = "Does not reproduce" if gap <= 2 * error else "Reproduces"
    said = "In part (better, by less)" if said == "Reproduces" and gap + 2 * error < PAPER_GAP else said
    verdict = (
        f"{said}: a sparsity prior on X-Gradient beats one on Expected Gradients by {signed(*lab.mean(gaps))} on "
        f"{len(gaps)} subsamples and by {signed(gap, error)} on {len(fresh)} further ones (paper {PAPER_GAP:+.4f}). "
        f"Without a prior, a network without biases is {'as good' if bias >= -2 * bias_error else 'worse'}: "
        f"{signed(bias, bias_error)} (paper {PAPER['Unreg w/o bias'] - PAPER['Unreg']:+.4f})."
    )
    every = pd.concat([gaps, fresh])
    note = (
        "Mean test ROC-AUC and its standard error over subsamples with 100 rows to train on and 100 to validate on; "
        "all others test. Differences are paired, subsample by subsample. λ is the best of "
        f"{', '.join(f'{weight:g}' for weight in nhanes.GRID)} by validation; the paper's search chose 0.1 for RRR and "
        f"Grad, and 1 for EG and X-Gradient. On all {len(every)} subsamples X-Gradient minus EG is "
        f"{signed(*lab.mean(every))}. The paper's file has 13442 rows × 118 features."
    )
    table = pd.DataFrame(lines)
    seed = "the subsample's number is its seed"
    return lab.Result(
        "Figure 1 (left): ROC-AUC with a prior for sparsity, NHANES I",
        table,
        verdict,
        note,
        data,
        seed,
        draw(table, every),
    )


def signed(mean: float, error: float) -> str:
    return f"{mean:+.4f} ± {error:.4f}"


def draw(table: pd.DataFrame, gaps: pd.Series):
    """A bar per model with two standard errors, and how the last two differ, block by block of subsamples."""
    figure, (left, right) = lab.figure(9.4, 3.2, columns=2)
    places, means = range(len(table)), table["ROC-AUC"]
    colours = [lab.COLOURS["strict X" if "w/o" in model else "regular"] for model in table["model"]]
    left.bar(places, means, width=0.62, color=colours, yerr=2 * table["ROC-AUC ±"], capsize=3)
    paper = table["paper"].astype(float)
    left.plot([place + 0.2 for place in places], paper, "D", color="black", markerfacecolor="white", label="paper")
    left.set_xticks(places, [model.replace(" w/o", "\nw/o") for model in table["model"]])
    left.set_ylim(min(means.min(), paper.min()) - 0.02, max(means.max(), paper.max()) + 0.02)
    left.set_ylabel("mean ROC-AUC, ± 2 standard errors", fontsize=8)
    left.legend(loc="upper left", fontsize=8, frameon=False)
    blocks = [lab.mean(block) for _, block in gaps.groupby(gaps.index // BLOCK)]
    middles = [BLOCK * (i + 0.5) for i in range(len(blocks))]
    means, errors = zip(*blocks, strict=True)
    right.errorbar(middles, means, [2 * error for error in errors], fmt="o", capsize=3, color=lab.COLOURS["strict X"])
    right.axhline(0, color="black", linewidth=0.8)
    right.axhline(PAPER_GAP, color="black", linewidth=0.8, linestyle=":", label="paper")
    right.set_xlabel(f"subsample, in blocks of {BLOCK}", fontsize=8)
    right.set_ylabel("X-Gradient − EG(1)", fontsize=8)
    right.legend(fontsize=8, frameon=False)
    return figure
