"""What of the paper reproduces and what does not: each claim, where, at what scale, how close, from the records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from axiograd.experiments import verdicts
from axiograd.experiments.image_networks import FAMILIES
from axiograd.experiments.records import Records, markdown_table, read
from axiograd.experiments.verdicts import CHEAPER, ERRORS, KEPT, LOST, SAME, Verdict


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
        verdicts.axioms,
        "all cells agree",
    ),
    Claim("Networks lose little accuracy without their biases", "Table 2, left", "table2", verdicts.accuracy, _LITTLE),
    Claim(
        "The same, with the paper's optimisers, schedules and mixup, for fewer epochs",
        "Table 2, left",
        "table2-recipes",
        verdicts.accuracy,
        _LITTLE,
    ),
    Claim(
        "One gradient is Integrated Gradients on X-DNNs only",
        "Table 2, right",
        "difference",
        verdicts.difference,
        f"at most {SAME:g} % on X-DNNs, more on regular networks",
    ),
    Claim(
        "X-Gradient is on par with 128 steps in masking metrics",
        "Table 3",
        "table3",
        verdicts.on_par,
        f"within {ERRORS:g} standard errors everywhere",
    ),
    Claim(
        "The order of the methods in masking metrics",
        "Table 3",
        "table3",
        verdicts.order,
        "no pair clearly reversed; in part: half of the pairs in order",
    ),
    Claim(
        "A sparsity prior on X-Gradient beats one on Expected Gradients",
        "Figure 1, left",
        "fig1-left",
        verdicts.best_prior,
        f"by more than {ERRORS:g} standard errors, and by as much as in the paper; in part: by less",
    ),
    Claim(
        "Without a prior, a network without biases is as good",
        "Figure 1, left",
        "fig1-left",
        verdicts.no_worse,
        f"not worse by more than {ERRORS:g} standard errors",
    ),
    Claim(
        "Expected Gradients catches up with many references only",
        "Figure 1, right",
        "fig1-right",
        verdicts.catching_up,
        f"behind by more than {ERRORS:g} standard errors until the paper's number; in part: with fewer",
    ),
    Claim(
        "The accuracy of X-DNNs does not depend on contrast",
        "Figure 2, left",
        "fig2-left",
        verdicts.contrast,
        "X-DNNs lose less than a point, regular networks more",
    ),
    Claim(
        "Their attributions scale with it and keep their shape",
        "Figure 2, right",
        "fig2-right",
        verdicts.scaled_maps,
        _SHAPE,
    ),
    Claim("The same, on more images", "Figure 4", "fig4", verdicts.scaled_maps, _SHAPE),
    Claim(
        "Integrated Gradients converges after about 128 steps",
        "Figure 3",
        "fig3",
        verdicts.converged,
        f"less than {SAME:g} % off on every regular network; in part: on one",
    ),
    Claim(
        "Training with X-Gradient is 130 × cheaper than with EG(32)",
        "Section 4.3, appendix",
        "efficiency",
        verdicts.cheaper,
        f"as much cheaper on every network and setting; in part: {CHEAPER} ×",
    ),
    Claim(
        "It takes 3.5 × less memory",
        "Section 4.3, appendix",
        "efficiency",
        verdicts.lighter,
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
