"""Table 2: what removing the bias costs in accuracy, and how far one gradient is from Integrated Gradients.

Trained here from scratch on small images, and the published checkpoints at full scale. The right half of the table for
pretrained and published networks is the item `difference`; what conversion costs pretrained ones is `conversion`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from axiograd.experiments import image_networks, table2_training
from axiograd.experiments.chunks import Chunk, chunks
from axiograd.experiments.image_networks import FAMILIES, Family
from axiograd.experiments.item import Cell, Item, Plan, Setting, Table, Work
from axiograd.experiments.paper import TABLE2_DIFFERENCE, TABLE2_TOP5
from axiograd.experiments.records import RecordedPiece, Records, mean_and_std
from axiograd.experiments.table2_training import NETWORKS, Pair

#: Data sets that networks are trained on, seeds, and images that are compared with Integrated Gradients.
TRAINED: Mapping[str, tuple[tuple[str, ...], int, int]] = {
    "quick": (("shapes",), 1, 5),
    "real": (("fashion-mnist", "tiny-imagenet"), 3, 100),
}
CHUNK, BATCH = 1000, 20
KINDS = {False: "regular", True: "X"}
HEADER = (
    *("data", "network", "form", "top-1 %", "top-5 %", "lost top-1", "difference to IG %"),
    *("paper top-5 %", "paper difference %"),
)


def plan(setting: Setting) -> Plan:
    """At full scale the published networks; otherwise trainings."""
    if setting.scale == "full":
        data = image_networks.images(FAMILIES["full"][0], setting).name
        return Plan(data, {**image_networks.described(setting), "scale": "full"}, (partial(_published, setting),))
    sets, seeds, compared = TRAINED[setting.scale]
    settings = {
        "scale": setting.scale,
        "seeds": seeds,
        "batch": table2_training.BATCH,
        "weight_decay": table2_training.WEIGHT_DECAY,
        "trained_with": {name: network.recipe for name, network in NETWORKS.items()},
        "training_images": {name: len(table2_training.load(name).train) for name in sets},
        "augmentation": {name: "flips" if table2_training.load(name).flips else "none" for name in sets},
        "epochs": {name: table2_training.load(name).epochs for name in sets},
        "ig_steps": table2_training.IG_STEPS,
        "compared_images": compared,
        "contrasts": list(table2_training.CONTRASTS),
    }
    names = "; ".join(table2_training.load(name).train.name for name in sets)
    return Plan(names, {**settings, "seed": setting.seed}, (partial(_works, setting),))


def _published(setting: Setting, _: Records) -> Sequence[Work]:
    return [
        Work(
            {"part": "published", "network": family.key, "form": form, "images": chunk.key},
            partial(_published_hits, family, form, chunk, setting),
        )
        for family in FAMILIES["full"]
        for form in family.forms
        for chunk in chunks(image_networks.order(image_networks.images(family, setting), setting.seed), CHUNK)
    ]


def _published_hits(family: Family, form: str, chunk: Chunk, setting: Setting) -> dict[str, Any]:
    return hits(image_networks.network(family, form, setting), family, chunk.indices, setting)


def _works(setting: Setting, _: Records) -> Sequence[Work]:
    sets, seeds, compared = TRAINED[setting.scale]
    return [
        Work(
            {"part": "trained", "data": data, "network": name, "kind": kind, "seed": setting.seed + seed},
            partial(
                table2_training.train,
                network,
                table2_training.load(data),
                homogeneous=homogeneous,
                seed=setting.seed + seed,
                n_compared=compared,
            ),
        )
        for seed in range(seeds)
        for data in sets
        for name, network in NETWORKS.items()
        for homogeneous, kind in KINDS.items()
    ]


def table(records: Records) -> Table:
    """A line per network and form, with the accuracy that it has less than the regular one."""
    rows = rows_of_pairs(records.find(part="trained"), NETWORKS)
    rows += _published_rows(records.find(part="published"))
    return Table(HEADER, tuple(rows), " ".join([NOTE, *lost_points(records.find(part="trained"))]))


NOTE = (
    "Mean ± standard deviation of the seeds where networks were trained here. Lost is the regular network's top-1 "
    "minus this one's, in points; what pretrained networks lose by conversion is another table. Difference is the "
    "mean absolute relative difference to Integrated Gradients with 128 steps of "
    "Input×Gradient (regular) or X-Gradient (X), components below 1/1000 of the mean left out. The paper's columns are "
    "of AlexNet, VGG16 and Fixup-ResNet-50 on ImageNet's validation split: other networks and images than those "
    "trained here, so only the losses compare."
)


_LOST = ", ".join(f"{name} {regular - x:.2f}" for name, (regular, x) in TABLE2_TOP5.items())
PAPERS = f"The paper's lose, in points of top-5: {_LOST}."


def lost_points(pieces: Sequence[RecordedPiece]) -> Iterator[str]:
    """What the biases of the networks trained here were worth, by data set, beside the paper's."""
    for data in dict.fromkeys(p.key["data"] for p in pieces):
        top1 = {
            (p.key["network"], p.key["seed"], p.key["kind"]): p.values["top1"] for p in pieces if p.key["data"] == data
        }
        pairs = [pair for *pair, kind in top1 if kind == "X" and (*pair, "regular") in top1]
        lost = [top1[*pair, "regular"] - top1[*pair, "X"] for pair in pairs]
        if len(lost) > 1:
            mean, error = statistics.fmean(lost), statistics.stdev(lost) / math.sqrt(len(lost))
            yield f"On {data} the {len(lost)} pairs lose {mean:z.1f} ± {error:.1f} points (standard error)."
    if pieces:
        yield PAPERS


def rows_of_pairs(pieces: Sequence[RecordedPiece], networks: Mapping[str, Pair]) -> list[tuple[Cell, ...]]:
    """Of each pair on each data set the regular network and the one without biases, seeds together."""
    rows: list[tuple[Cell, ...]] = []
    for data, name in dict.fromkeys((p.key["data"], p.key["network"]) for p in pieces):
        chosen = [p for p in pieces if (p.key["data"], p.key["network"]) == (data, name)]
        by_seed = {(p.key["kind"], p.key["seed"]): p.values["top1"] for p in chosen}
        for place, kind in enumerate(KINDS.values()):
            values = [p.values for p in chosen if p.key["kind"] == kind]
            if not values:
                continue
            lost = [
                by_seed["regular", seed] - top1
                for (one, seed), top1 in by_seed.items()
                if one == kind == "X" and ("regular", seed) in by_seed
            ]
            paper = networks[name].paper
            rows.append(
                (
                    data,
                    networks[name].label,
                    kind,
                    *(mean_and_std([v[what] for v in values]) for what in ("top1", "top5")),
                    mean_and_std(lost) or None,
                    mean_and_std([v["difference"] for v in values], 3 if kind == "X" else 1),
                    TABLE2_TOP5[paper][place],
                    TABLE2_DIFFERENCE[paper][place],
                )
            )
    return rows


def _published_rows(pieces: Sequence[RecordedPiece]) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    families = {family.key: family for family in FAMILIES["full"]}
    shares: dict[tuple[str, str], tuple[float, float]] = {}
    for name, form in dict.fromkeys((p.key["network"], p.key["form"]) for p in pieces):
        chosen = [p.values for p in pieces if (p.key["network"], p.key["form"]) == (name, form)]
        n = sum(v["images"] for v in chosen)
        shares[name, form] = (100 * sum(v["top1"] for v in chosen) / n, 100 * sum(v["top5"] for v in chosen) / n)
    for (name, form), (top1, top5) in shares.items():
        regular, family = shares.get((name, "regular")), families[name]
        lost = f"{regular[0] - top1:.1f}" if regular and form != "regular" else None
        paper = TABLE2_TOP5[family.paper][form != "regular"] if family.paper else None
        rows.append(("published", family.label, form, f"{top1:.1f}", f"{top5:.1f}", lost, None, paper, None))
    return rows


@torch.no_grad()
def hits(model: nn.Module, family: Family, indices: Sequence[int], setting: Setting) -> dict[str, Any]:
    """How many of some images have their class first, and among the first five."""
    data = image_networks.images(family, setting)
    first, among = 0, 0
    for start in range(0, len(indices), BATCH):
        inputs, targets = image_networks.batch(data, indices[start : start + BATCH], family)
        outputs = model(inputs)
        right = outputs.topk(min(5, outputs.shape[1]), 1).indices == targets[:, None]
        first, among = first + int(right[:, 0].sum()), among + int(right.sum())
    return {"top1": first, "top5": among, "images": len(indices)}


ITEM = Item("table2", "Table 2: accuracy without biases, and difference to Integrated Gradients", plan, table)
