"""What the records say of each claim of the paper: in words with numbers, and as a verdict."""

from __future__ import annotations

import math
from typing import Literal

from axiograd.axioms import AXIOMS
from axiograd.axioms.paper_table import Table1
from axiograd.experiments import fig2_left, fig3, table3
from axiograd.experiments.chunks import Average, average
from axiograd.experiments.image_networks import FAMILIES
from axiograd.experiments.nhanes.figure import PAPER_LEFT, PAPER_RIGHT, left_outcomes, right_outcomes
from axiograd.experiments.nhanes.further import Further, signed
from axiograd.experiments.paper import EFFICIENCY, FIG3_CONVERGED, TABLE2_DIFFERENCE, TABLE2_TOP5
from axiograd.experiments.records import Records
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
    better, worse, (gap, error), paper = _of_figure_1(records, "x-gradient", "eg")
    said = f"ROC-AUC {better:.4f} against {worse:.4f}: {gap:+.4f} ± {error:.4f}"
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
    *_, (gap, error), paper = _of_figure_1(records, "unregularised-x", "unregularised")
    said = f"ROC-AUC without biases minus with them: {gap:+.4f} ± {error:.4f} (paper {paper:+.4f})"
    return said, "reproduces" if gap >= -ERRORS * error else "does not"


def _of_figure_1(records: Records, one: str, other: str) -> tuple[float, float, tuple[float, float], float]:
    """The means of two models, their paired difference with its error, and the paper's difference."""
    found = {each.name: each for each in left_outcomes(records)}
    over = found[one].over(found[other])
    if over is None:
        raise ValueError(f"{one} and {other} have no subsample in common.")
    return found[one].mean, found[other].mean, over, PAPER_LEFT[one] - PAPER_LEFT[other]


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
