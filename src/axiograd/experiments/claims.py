"""What of the paper reproduces and what does not: each claim, where, at what scale, how close, from the records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from axiograd.axioms import AXIOMS
from axiograd.axioms.paper_table import Table1
from axiograd.experiments import fig2_left, fig3, table3
from axiograd.experiments.chunks import Average, average
from axiograd.experiments.image_networks import FAMILIES
from axiograd.experiments.nhanes.figure import PAPER_LEFT, PAPER_RIGHT, left_outcomes, right_outcomes
from axiograd.experiments.nhanes.further import Further, signed
from axiograd.experiments.paper import EFFICIENCY, FIG3_CONVERGED, TABLE2_DIFFERENCE, TABLE2_TOP5
from axiograd.experiments.records import Records, markdown_table, read
from axiograd.experiments.table2_training import NETWORKS

Verdict = Literal["reproduces", "in part", "does not", "not judged"]
#: Standard errors within which two means are taken for the same.
ERRORS = 2.0
#: Per cent within which one gradient is Integrated Gradients, float32 and 128 steps allowed for.
SAME = 1.0
#: 1 − cosine below which a map has kept its shape.
KEPT = 1e-4
#: Points of accuracy that the paper's X-DNNs lose at most (ResNet-50, top-5), rounded up.
LOST = 1.5
#: How many times a step with EG(32) has to take for the claim to hold in part: half of the gradients that it adds.
CHEAPER = 16


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, the item that tests it, and what its records say."""

    says: str
    where: str
    item: str
    #: What was found, in words with numbers, and the verdict.
    judge: Callable[[Records], tuple[str, Verdict]]
    #: What the verdict asks for.
    needs: str


def axioms(records: Records) -> tuple[str, Verdict]:
    """Cells of Table 1 that the paper fills."""
    paper = Table1(())
    cells = [
        (piece.values["axioms"][axiom.name]["mark"], theirs)
        for piece in records.pieces
        for axiom in AXIOMS
        if (theirs := paper.paper(piece.key["method"], axiom.name)) != "–"
    ]
    alike = sum(ours == theirs for ours, theirs in cells)
    return f"{alike} of {len(cells)} cells agree", "reproduces" if alike == len(cells) else "does not"


def accuracy(records: Records) -> tuple[str, Verdict]:
    """Points of top-1 that networks lose with their biases, by data set and network."""
    pieces = records.find(part="trained") or records.find(part="recipe")
    top1 = {
        tuple(piece.key[name] for name in ("data", "network", "kind", "seed")): piece.values["top1"] for piece in pieces
    }
    lost: dict[tuple[str, str], list[float]] = {}
    for (data, network, kind, seed), value in top1.items():
        if kind == "regular" and (data, network, "X", seed) in top1:
            lost.setdefault((data, network), []).append(value - top1[data, network, "X", seed])
    found = {pair: Average.of(values) for pair, values in lost.items()}
    said = ", ".join(
        f"{NETWORKS[n].label.split(',')[0]} on {d} {m.text(1).replace('-0.0', '0.0')}" for (d, n), m in found.items()
    )
    within = [m.mean + ERRORS * (m.standard_error or 0) <= LOST for m in found.values()]
    paper = ", ".join(f"{name} {regular - x:.2f}" for name, (regular, x) in TABLE2_TOP5.items())
    verdict: Verdict = "reproduces" if all(within) else "in part" if 2 * sum(within) >= len(within) else "does not"
    seeds = "one seed each" if all(m.n == 1 for m in found.values()) else "± standard error"
    about = f"{sum(within)} of {len(within)} pairs lose no more; points of top-1 lost, {seeds}"
    return f"{about}: {said} (paper, top-5: {paper})", verdict


def difference(records: Records) -> tuple[str, Verdict]:
    """Of one gradient to Integrated Gradients, regular and X."""
    parts: dict[tuple[str, bool], list[float]] = {}
    for family in FAMILIES[records.settings["scale"]]:
        for form in family.forms:
            if pieces := records.find(network=family.key, form=form):
                for name in ("plain", "value"):
                    parts.setdefault((name, form != "regular"), []).append(100 * average(pieces, name).mean)
    ours, most = (
        f"regular {_range(parts[name, False], '.0f')} %, X-DNN {_range(parts[name, True], '.2g')} %"
        for name in ("plain", "value")
    )
    paper = " and ".join(_range([pair[i] for pair in TABLE2_DIFFERENCE.values()], "g") + " %" for i in (0, 1))
    holds = max(parts["plain", True]) <= SAME < min(parts["value", False])
    said = f"{ours} (paper: {paper}); without components below a thousandth of the mean {most}"
    return said, "reproduces" if holds else "does not"


def on_par(records: Records) -> tuple[str, Verdict]:
    """X-Gradient against IG(128) in every metric: differences image by image, in units of their standard error."""
    errors, points = [], []
    for family, form in _x_forms(records):
        for metric in table3.METRICS:
            one, many = (
                records.find(network=family, form=form, method=method) for method in ("X-Gradient (1)", "IG (128)")
            )
            apart = table3.paired(one, many, metric)
            points.append(abs(apart.mean))
            none = math.inf if apart.mean else 0.0  # apart by the same on all images, or not at all
            errors.append(abs(apart.mean) / apart.standard_error if apart.standard_error else none)
    said = f"{len(errors)} areas, at most {max(errors):.1f} standard errors of the paired difference apart, and "
    return f"{said}{max(points):.2g} points", "reproduces" if max(errors) <= ERRORS else "does not"


def order(records: Records) -> tuple[str, Verdict]:
    """Pairs of methods that the paper orders, and those that come out the other way round here."""
    every = table3.orders(records)
    agree, turned = ([each for each in every if each.sign == sign] for sign in (1, -1))
    clearly = [each.said for each in turned if each.clearly]
    said = (
        f"{len(agree)} of {len(every)} pairs are in the paper's order ({sum(each.clearly for each in agree)} by more "
    )
    said += f"than two standard errors), {len(every) - len(agree) - len(turned)} are equal, "
    said += f"{len(turned) - len(clearly)} are reversed by less than two standard errors, {len(clearly)} by more"
    said += f": {'; '.join(clearly)}" if clearly else ""
    for network in dict.fromkeys(each.network for each in every):
        here = [each for each in every if each.network == network]
        said += f"; {network} alone ({here[0].n} images) {sum(each.sign > 0 for each in here)} of {len(here)}"
    if 2 * len(agree) < len(every):
        return said, "does not"
    return said, "in part" if clearly else "reproduces"


def best_prior(records: Records) -> tuple[str, Verdict]:
    """X-Gradient against Expected Gradients with one reference, paired; subsamples that chose no λ decide."""
    found = {one.name: one for one in left_outcomes(records)}
    over = found["x-gradient"].over(found["eg"])
    if over is None:
        return "no subsample in common", "does not"
    gap, error = over
    paper = PAPER_LEFT["x-gradient"] - PAPER_LEFT["eg"]
    said = f"ROC-AUC {found['x-gradient'].mean:.4f} against {found['eg'].mean:.4f}: {gap:+.4f} ± {error:.4f}"
    if further := Further.of(records):
        fresh = further.fresh
        said += f" on {len(further.first)} subsamples, {signed(fresh)} on {fresh.n} further ones, "
        said += f"{signed(further.all)} on all"
        gap, error = fresh.mean, fresh.standard_error or 0.0
    verdict: Verdict = "does not" if gap <= ERRORS * error else "reproduces"
    if verdict == "reproduces" and gap + ERRORS * error < paper:
        said, verdict = f"{said}: better, by less than in the paper", "in part"
    return f"{said} (paper {paper:+.4f})", verdict


def no_worse(records: Records) -> tuple[str, Verdict]:
    """The network without biases against the regular one, both without a prior."""
    found = {one.name: one for one in left_outcomes(records)}
    over = found["unregularised-x"].over(found["unregularised"])
    if over is None:
        return "no subsample in common", "does not"
    gap, error = over
    paper = PAPER_LEFT["unregularised-x"] - PAPER_LEFT["unregularised"]
    said = f"ROC-AUC without biases minus with them: {gap:+.4f} ± {error:.4f} (paper {paper:+.4f})"
    return said, "reproduces" if gap >= -ERRORS * error else "does not"


def catching_up(records: Records) -> tuple[str, Verdict]:
    """From how many references on EG is not behind."""
    x_gradient, by_references = right_outcomes(records)
    overs = {
        one.references: over
        for one in by_references
        if x_gradient is not None and (over := one.over(x_gradient)) is not None
    }
    behind = max((n for n, (gap, error) in overs.items() if gap < -ERRORS * error), default=0)
    caught = min((n for n in overs if n > behind), default=None)
    ahead = next((f"ahead from {n} ({gap:+.4f} ± {error:.4f})" for n, (gap, error) in overs.items() if gap >= 0), None)
    paper = min(n for n, auc in PAPER_RIGHT.items() if auc >= PAPER_LEFT["x-gradient"])
    said = f"behind by more than two standard errors with up to {behind}, by the means {ahead or 'never ahead'}"
    verdict: Verdict = "does not" if not behind else "reproduces" if caught is None or caught >= paper else "in part"
    return f"{said} (paper: from {paper})", verdict


def contrast(records: Records) -> tuple[str, Verdict]:
    """Accuracy at a tenth of the contrast."""
    regular: list[float] = []
    x: list[float] = []
    for forms in fig2_left.curves(records).values():
        for form, curve in forms.items():
            (regular if form == "regular" else x).append(curve[1.0] - curve[0.1])
    said = (
        f"at a tenth of the contrast regular networks lose {_range(regular, '.0f')} points, X-DNNs {_range(x, '.1f')}"
    )
    return said, "reproduces" if max(map(abs, x)) < 1 < min(regular) else "does not"


def scaled_maps(records: Records) -> tuple[str, Verdict]:
    """1 − cosine of attributions at full and at low contrast."""
    change: dict[bool, list[float]] = {False: [], True: []}
    for piece in records.pieces:
        for form, values in piece.values["networks"].items():
            change[form != "regular"].append(values["change_fast"])
    said = f"1 − cosine: regular {_range(change[False], '.2g')}, X-DNN {_range(change[True], '.1g')}"
    return said, "reproduces" if max(change[True]) < KEPT < min(change[False]) else "does not"


def converged(records: Records) -> tuple[str, Verdict]:
    """What is left to gain after the paper's number of steps."""
    curves = fig3.curves(records)
    regular = [curve[FIG3_CONVERGED] for name, curve in curves.items() if name.endswith("regular")]
    x = [curve for name, curve in curves.items() if not name.endswith("regular")]
    one_step, many = ([curve[n] for curve in x] for n in (1, FIG3_CONVERGED))
    said = f"{_range(regular, '.2g')} % off after {FIG3_CONVERGED} steps on regular networks"
    said += f"; X-DNNs {_range(one_step, '.1g')} % after one step, {_range(many, '.1g')} % after {FIG3_CONVERGED}"
    within = [each < SAME for each in regular]
    verdict: Verdict = "does not" if max(one_step) >= SAME or not any(within) else "in part"
    return said, "reproduces" if verdict == "in part" and all(within) else verdict


def cheaper(records: Records) -> tuple[str, Verdict]:
    """A training step with EG(32) in steps with X-Gradient, on one core."""
    at_once, default = (
        {piece.key["network"]: piece.values["EG_over_prior"] for piece in records.find(what=what)}
        for what in ("time", "default")
    )
    words = [
        f"{', '.join(f'{name} {ratio:.0f} ×' for name, ratio in found.items())} with {how}"
        for found, how in ((at_once, "all references in one batch"), (default, "one after the other, the default"))
        if found
    ]
    least = min((*at_once.values(), *default.values()))
    verdict: Verdict = "reproduces" if least >= EFFICIENCY.time_ratio else "in part" if least >= CHEAPER else "does not"
    return f"{'; '.join(words)} (paper, ResNet-50 on a GPU: {EFFICIENCY.time_ratio:g} ×)", verdict


def lighter(records: Records) -> tuple[str, Verdict]:
    """Memory of a training step with EG(32), all references at once, in that with X-Gradient."""
    found = {p.key["network"]: p.values["EG"] / p.values["prior"] for p in records.find(what="memory")}
    said = ", ".join(f"{name} {ratio:.1f} ×" for name, ratio in found.items())
    holds = min(found.values()) >= EFFICIENCY.memory_ratio
    words = f"{said}, beyond model and inputs (paper, ResNet-50, whole process: {EFFICIENCY.memory_ratio:g} ×)"
    return words, "reproduces" if holds else "does not"


def images(records: Records) -> str:
    """How many images each network was judged by, where networks are."""
    seen: dict[str, set[object]] = {}
    for piece in records.pieces:
        network, of = (
            piece.key.get("network"),
            piece.key.get("images", [piece.key["image"]] if "image" in piece.key else None),
        )
        if network is not None and of is not None:
            seen.setdefault(network, set()).update(range(*of) if len(of) > 1 else of)
    labels = {family.key: family.label for families in FAMILIES.values() for family in families}
    return ", ".join(f"{len(found)} ({labels.get(network, network)})" for network, found in seen.items())


_LITTLE = f"no pair loses more than {LOST:g} points, two standard errors added; in part: half of the pairs"
_SHAPE = f"1 − cosine below {KEPT:g} on X-DNNs, above it on regular networks"
CLAIMS = (
    Claim(
        "X-Gradient satisfies the axioms that Integrated Gradients does; others do not",
        "Table 1",
        "table1",
        axioms,
        "all cells agree",
    ),
    Claim("Networks lose little accuracy without their biases", "Table 2, left", "table2", accuracy, _LITTLE),
    Claim(
        "The same, with the paper's optimisers, schedules and mixup, for fewer epochs",
        "Table 2, left",
        "table2-recipes",
        accuracy,
        _LITTLE,
    ),
    Claim(
        "One gradient is Integrated Gradients on X-DNNs only",
        "Table 2, right",
        "difference",
        difference,
        f"at most {SAME:g} % on X-DNNs, more on regular networks",
    ),
    Claim(
        "X-Gradient is on par with 128 steps in masking metrics",
        "Table 3",
        "table3",
        on_par,
        f"within {ERRORS:g} standard errors everywhere",
    ),
    Claim(
        "The order of the methods in masking metrics",
        "Table 3",
        "table3",
        order,
        "no pair clearly reversed; in part: half of the pairs in order",
    ),
    Claim(
        "A sparsity prior on X-Gradient beats one on Expected Gradients",
        "Figure 1, left",
        "fig1-left",
        best_prior,
        f"by more than {ERRORS:g} standard errors, and by as much as in the paper; in part: by less",
    ),
    Claim(
        "Without a prior, a network without biases is as good",
        "Figure 1, left",
        "fig1-left",
        no_worse,
        f"not worse by more than {ERRORS:g} standard errors",
    ),
    Claim(
        "Expected Gradients catches up with many references only",
        "Figure 1, right",
        "fig1-right",
        catching_up,
        f"behind by more than {ERRORS:g} standard errors until the paper's number; in part: with fewer",
    ),
    Claim(
        "The accuracy of X-DNNs does not depend on contrast",
        "Figure 2, left",
        "fig2-left",
        contrast,
        "X-DNNs lose less than a point, regular networks more",
    ),
    Claim(
        "Their attributions scale with it and keep their shape", "Figure 2, right", "fig2-right", scaled_maps, _SHAPE
    ),
    Claim("The same, on more images", "Figure 4", "fig4", scaled_maps, _SHAPE),
    Claim(
        "Integrated Gradients converges after about 128 steps",
        "Figure 3",
        "fig3",
        converged,
        f"less than {SAME:g} % off on every regular network; in part: on one",
    ),
    Claim(
        "Training with X-Gradient is 130 × cheaper than with EG(32)",
        "Section 4.3, appendix",
        "efficiency",
        cheaper,
        f"as much cheaper on every network and setting; in part: {CHEAPER} ×",
    ),
    Claim(
        "It takes 3.5 × less memory",
        "Section 4.3, appendix",
        "efficiency",
        lighter,
        "as much less on every network",
    ),
)

INTRODUCTION = """# What reproduces, and what does not

Each claim of the paper, where it is made, what was run here, and how close it came. The verdicts are computed from the
files in `results/` by `python -m axiograd.experiments.results_page`, like [the tables](results.md) that they summarise;
what a verdict asks for stands beside it, and ± is a standard error. The paper's networks are AlexNet, VGG16 and
ResNet-50 on ImageNet; ours are smaller ones trained here, and pretrained ones converted, on the data named, some of
them on a few images only. Where a network was converted, contrast and the difference to Integrated Gradients follow
from the conversion; networks that were stripped without calibration have both, and may classify nothing
([what conversion costs](results.md)). `axiograd reproduce NAME --imagenet ROOT --weights DIR` is for the paper's own
networks and images; these were not available here."""


def page(results: Path) -> str:
    """The Markdown of the page."""
    rows = [row for claim in CLAIMS for row in judged(claim, results)]
    count = {verdict: sum(row[-1] == verdict for row in rows) for verdict in PLURAL}
    total = ", ".join(f"{n} {verdict if n == 1 else PLURAL[verdict]}" for verdict, n in count.items() if n)
    table = markdown_table(("claim", "where", "on", "found", "reproduces if", "verdict"), rows)
    return f"{INTRODUCTION}\n\nOf {len(rows)} claims {total}.\n\n{table}\n"


PLURAL: Mapping[str, str] = {
    "reproduces": "reproduce",
    "in part": "do in part",
    "does not": "do not",
    "not judged": "are not judged",
}


def judged(claim: Claim, results: Path) -> Iterator[tuple[str, ...]]:
    """The row of a claim, at the largest scale that was run."""
    for scale in ("full", "real"):
        path = results / claim.item / f"{scale}.json"
        if path.is_file():
            records = read(path)
            found: str
            verdict: Verdict
            try:
                found, verdict = claim.judge(records)
            except (KeyError, ValueError):  # a network or a method that has not been run yet
                found, verdict = "too little was run", "not judged"
            missing = f". Not complete: {records.missing}." if records.missing else ""
            yield (
                claim.says,
                claim.where,
                f"{records.data}{f'; images: {judging}' if (judging := images(records)) else ''} (`{claim.item}`)",
                f"{found}{missing}",
                claim.needs,
                verdict,
            )
            return


def _x_forms(records: Records) -> list[tuple[str, str]]:
    pairs = dict.fromkeys((piece.key["network"], piece.key["form"]) for piece in records.pieces)
    return [pair for pair in pairs if pair[1] != "regular"]


def _range(values: list[float], digits: str) -> str:
    """The smallest to the largest, or the one that there is.

    >>> _range([0.5, 2.0], "g"), _range([1.0], "g")
    ('0.5 to 2', '1')
    """
    low, high = (f"{value:{digits}}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
