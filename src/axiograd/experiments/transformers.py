"""Transformers as X-DNNs: what being homogeneous costs them, and what their attributions are worth.

A vision transformer and a text encoder are trained from scratch as they are usually built (regular), lifted and then
trained, and built so that they are homogeneous. Attributions are judged by deletion and
insertion with equal numbers of patches or words, and a prior takes a shortcut away from the built ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from axiograd.experiments.item import Cell, Item, Plan, Setting, Stage, Table, Work
from axiograd.experiments.records import RecordedPiece, Records, mean_and_std
from axiograd.experiments.transformer_training import (
    BATCH,
    EPOCHS,
    FORMS,
    FRACTIONS,
    HELD_OUT,
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
#: λ of the prior that are tried with the first seed on held-out training samples; the best one is used.
WEIGHTS = {"fashion-mnist": (10.0, 100.0), "docstrings": (30.0, 300.0)}
SIZES = {
    "real": {"n_train": 2000, "n_test": 1000, "judged": 60, "seeds": 3},
    "quick": {"n_train": 200, "n_test": 60, "judged": 8, "seeds": 1},
}


def plan(setting: Setting) -> Plan:
    """Every network of every seed, the first seed of all of them first."""
    size = SIZES[setting.scale]
    sets = ("docstrings", "shapes") if setting.scale == "quick" else ("docstrings", "fashion-mnist", "tiny-imagenet-20")
    several = {"n_train": size["n_train"], "n_test": size["n_test"]}

    def network(name: str, seed: int, form: str) -> Any:
        return transformer(load(name, **several), seed, size["judged"], form)

    def tried(name: str, weight: float) -> Any:
        held = {"n_train": size["n_train"], "n_test": min(HELD_OUT, size["n_test"])}
        return shortcut(*giving_away(name, **held, held_out=True), setting.seed, weight)

    def mended(name: str, seed: int, weight: float) -> Any:
        return shortcut(*giving_away(name, **several), seed, weight)

    def choice(records: Records) -> Sequence[Work]:  # noqa: ARG001 - needs none
        return [
            Work({"part": "choice", "data": name, "weight": weight}, partial(tried, name, weight))
            for name in sets
            for weight in WEIGHTS.get(name, ())
        ]

    def networks(seed: int, records: Records) -> Sequence[Work]:  # noqa: ARG001 - needs none
        return [
            Work({"part": "network", "data": name, "form": form, "seed": seed}, partial(network, name, seed, form))
            for name in sets
            for form in FORMS
        ]

    def shortcuts(seed: int, records: Records) -> Sequence[Work]:
        return [
            Work(
                {"part": "shortcut", "data": name, "weight": weight, "seed": seed}, partial(mended, name, seed, weight)
            )
            for name in sets
            if name in WEIGHTS
            for weight in (0.0, chosen(records, name))
        ]

    seeds = range(setting.seed, setting.seed + size["seeds"])
    settings = {
        **size,
        "held_out": HELD_OUT,
        "epochs": EPOCHS,
        "batch": BATCH,
        "learning_rate": LEARNING_RATE,
        "fractions": list(FRACTIONS),
    }
    data = ", ".join(TITLES[name] for name in sets).replace("docstrings", "docstrings of Python's standard library")
    stages: list[Stage] = [partial(networks, seed) for seed in seeds]
    stages[1:1] = [choice]
    return Plan(data, settings, (*stages, *(partial(shortcuts, seed) for seed in seeds)))


def chosen(records: Records, name: str) -> float:
    """The λ with which the network is right most often on held-out training samples that mislead."""
    tried = records.find(part="choice", data=name)
    return float(max(tried, key=lambda piece: piece.values["misleading"]).key["weight"])


def table(records: Records) -> Table:
    """A line per set, form and method; below them the shortcuts."""
    rows: list[tuple[Cell, ...]] = []
    for name, title in TITLES.items():
        for form, called in zip(FORMS, ("regular", "lifted, then trained", "built so"), strict=True):
            pieces = records.find(part="network", data=name, form=form)
            rows += _lines(title, called, [p.values["judged"] for p in pieces], pieces)
            if pieces and form == "regular":
                after = mean_and_std([p.values["lifted_accuracy"] for p in pieces])
                rows.append((None, "lifted after training", after, None, None, None, None, len(pieces)))
    header = ("data", "network", "accuracy", "method", "deletion ↓", "insertion ↑", "completeness error", "seeds")
    return Table(header, tuple(rows), "\n\n".join([_NOTE, *_shortcuts(records)]))


def _lines(title: str, form: str, found: Sequence[Any], pieces: Sequence[RecordedPiece]) -> list[tuple[Cell, ...]]:
    lines: list[tuple[Cell, ...]] = []
    for method in found[0] if found else ():
        first = not lines
        errors = [one[method]["completeness"] for one in found if "completeness" in one[method]]
        lines.append(
            (
                title if first else None,
                form if first else None,
                mean_and_std([p.values["accuracy"] for p in pieces]) if first else None,
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
    sentences = []
    what = {"docstrings": "a word at a random place names the class", "fashion-mnist": "a patch in a corner does"}
    for name in WEIGHTS:
        if not records.find(part="choice", data=name):
            continue
        weight = chosen(records, name)
        plain, prior = (records.find(part="shortcut", data=name, weight=w) for w in (0.0, weight))
        if plain and prior:
            values = [mean_and_std([p.values[k] for p in ps]) for k in ("misleading", "clean") for ps in (plain, prior)]
            sentences.append(
                f"Shortcut, {TITLES[name]} ({what[name]}), built network: accuracy where it misleads {values[0]} "
                f"without a prior and {values[1]} with one (λ = {weight:g}); without the shortcut {values[2]} and "
                f"{values[3]}; {len(prior)} seeds."
            )
    return sentences


_NOTE = (
    "Accuracy in per cent; mean ± standard deviation of the seeds. Deletion and insertion: probability of the "
    "predicted class in per cent, mean over 10, 20, 30, 50, 70 and 90 % of the patches or words taken out (deletion, "
    "lower is better) or alone left (insertion, higher is better), in the order of the attribution, equally many for "
    "every method. Patches become the mean colour, words are masked. The completeness error is relative to the root "
    "mean square of F(x) − F(0). Lifts are made at the scale of the training inputs, of a trained network (lifted "
    "after training) or of one that is trained then (lifted, then trained). Gradient × rollout does not add up. "
    "AttnLRP is not here: beside transformers 5.22, `import lxt.efficient` of lxt 2.1 ends with ImportError: cannot "
    "import name 'find_pruneable_heads_and_indices' from 'transformers.pytorch_utils'. "
    "Networks are small and trained briefly on two thousand samples: compare within a set, not with what such networks "
    "can reach. λ of the priors was chosen among two with the first seed on 500 further samples of the training set, "
    "and so were the learning rate, the same for all, and the form of the positions of the networks built so: on "
    "held-out samples of Fashion-MNIST (one seed, 3,000 samples, 12 epochs at 2e-3) positions as factors gave 76.7, "
    "relative ones alone 71.7, regular networks 79.9, lifted and then trained 79.1, lifted after training 74.6; after "
    "4 epochs all of them were 10 to 16 points lower."
)
ITEM = Item("transformers", "Transformers as X-DNNs", plan, table, scales=("quick", "real"))
