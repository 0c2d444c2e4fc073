"""Table 2: what removing the bias costs in accuracy, and how far one gradient is from Integrated Gradients.

Trained here from scratch on small images, pretrained networks converted, and the published checkpoints at full scale.
The right half of the table for pretrained and published networks is the item `difference`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from axiograd.experiments import image_networks, table2_converted, table2_training
from axiograd.experiments.chunks import chunks
from axiograd.experiments.image_networks import FAMILIES
from axiograd.experiments.item import Cell, Item, Plan, Scale, Setting, Table, Work
from axiograd.experiments.paper import TABLE2_DIFFERENCE, TABLE2_TOP5
from axiograd.experiments.records import Piece, Records, mean_and_std
from axiograd.experiments.table2_training import NETWORKS

#: Data sets that networks are trained on, seeds, and images that are compared with Integrated Gradients.
TRAINED: Mapping[str, tuple[tuple[str, ...], int, int]] = {
    "quick": (("shapes",), 1, 5),
    "real": (("fashion-mnist", "tiny-imagenet"), 3, 100),
}
CHUNK = 1000
KINDS = {False: "regular", True: "X"}


def plan(setting: Setting) -> Plan:
    """At full scale the published networks; otherwise trainings, and with real data the converted networks too."""
    if setting.scale == "full":
        data = image_networks.images(FAMILIES["full"][0], setting).name
        return Plan(data, {**image_networks.described(setting), "scale": "full"}, (partial(_published, setting),))
    sets, seeds, compared = TRAINED[setting.scale]
    settings = {
        "scale": setting.scale,
        "seeds": seeds,
        "batch": table2_training.BATCH,
        "weight_decay": table2_training.WEIGHT_DECAY,
        "trained_with": {
            name: [network.optimizer, network.learning_rate, network.scalar_lr_factor, network.clip, network.he]
            for name, network in NETWORKS.items()
        },
        "epochs": {name: table2_training.load(name).epochs for name in sets},
        "ig_steps": table2_training.IG_STEPS,
        "compared_images": compared,
        "contrasts": list(table2_training.CONTRASTS),
    }
    if setting.scale == "real":
        settings |= image_networks.described(setting) | {"distillation": str(table2_converted.RECIPE)}
    names = [table2_training.load(name).train.name for name in sets]
    if setting.scale == "real":
        names += dict.fromkeys(image_networks.images(family, setting).name for family in FAMILIES["real"])
    return Plan("; ".join(names), settings, (partial(_works, setting),))


def _published(setting: Setting, _: Records) -> Sequence[Work]:
    return [
        Work(
            {"part": "published", "network": family.key, "form": form, "images": chunk.key},
            partial(table2_converted.published, family, form, chunk, setting),
        )
        for family in FAMILIES["full"]
        for form in family.forms
        for chunk in chunks(image_networks.order(image_networks.images(family, setting), setting.seed), CHUNK)
    ]


def _works(setting: Setting, _: Records) -> Sequence[Work]:
    sets, seeds, compared = TRAINED[setting.scale]
    works = [
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
    if setting.scale == "real":
        works += [
            Work(
                {"part": "converted", "network": family.key, "form": form, "distilled": distilled},
                partial(table2_converted.converted, family, form, setting, distilled=distilled),
                cost=2.0 if distilled else 0.2,
            )
            for family in FAMILIES["real"]
            for form in family.forms
            for distilled in (False, True)
            if not (distilled and form == "regular")
        ]
    return works


def table(records: Records) -> Table:
    """A line per network and form, with the accuracy that it has less than the regular one."""
    rows = _trained(records.find(part="trained"))
    rows += _counted(records.find(part="converted"), "real", "pretrained")
    rows += _counted(records.find(part="published"), "full", "published")
    header: tuple[str, ...] = ("data", "network", "form", "top-1 %", "top-5 %", "lost top-1", "difference to IG %")
    header += ("paper top-5 %", "paper difference %")
    return Table(header, tuple(rows), " ".join([_NOTE, *_claims(records.find(part="trained"))]))


_NOTE = (
    "Mean ± standard deviation of the seeds where networks were trained here; converted networks are measured on half "
    "of their images and distilled, without labels, on others. ResNet-18 is distilled on images of the 20 classes and "
    "the size that it is measured on, which the original was not trained for: a gain is adaptation to them, not the "
    "work of the conversion. Lost is the regular network's top-1 minus this one's, in points. Difference is the "
    "mean absolute relative difference to Integrated Gradients with 128 steps of "
    "Input×Gradient (regular) or X-Gradient (X), components below 1/1000 of the mean left out. The paper's columns are "
    "of AlexNet, VGG16 and Fixup-ResNet-50 on ImageNet's validation split: other networks and images than those "
    "trained here, so only the losses compare."
)


def _claims(pieces: Sequence[Piece]) -> Iterator[str]:
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
        paper = ", ".join(f"{name} {regular - x:.2f}" for name, (regular, x) in TABLE2_TOP5.items())
        yield f"The paper's lose, in points of top-5: {paper}."


def _trained(pieces: Sequence[Piece]) -> list[tuple[Cell, ...]]:
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
            paper = NETWORKS[name].paper
            rows.append(
                (
                    data,
                    NETWORKS[name].label,
                    kind,
                    *(mean_and_std([v[what] for v in values]) for what in ("top1", "top5")),
                    mean_and_std(lost) or None,
                    mean_and_std([v["difference"] for v in values], 3 if kind == "X" else 1),
                    TABLE2_TOP5[paper][place],
                    TABLE2_DIFFERENCE[paper][place],
                )
            )
    return rows


def _counted(pieces: Sequence[Piece], scale: Scale, part: str) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    families = {family.key: family for family in FAMILIES[scale]}
    shares: dict[tuple[str, str, bool], tuple[float, float]] = {}
    for key in dict.fromkeys((p.key["network"], p.key["form"], p.key.get("distilled", False)) for p in pieces):
        chosen = [p.values for p in pieces if (p.key["network"], p.key["form"], p.key.get("distilled", False)) == key]
        n = sum(v["images"] for v in chosen)
        shares[key] = (100 * sum(v["top1"] for v in chosen) / n, 100 * sum(v["top5"] for v in chosen) / n)
    for (name, form, distilled), (top1, top5) in shares.items():
        regular = shares.get((name, "regular", False))
        lost = f"{regular[0] - top1:.1f}" if regular and form != "regular" else None
        label = f"{form}, distilled" if distilled else form
        family = families[name]
        paper = TABLE2_TOP5[family.paper][form != "regular"] if family.paper and form in {"regular", "X"} else None
        rows.append((part, family.label, label, f"{top1:.1f}", f"{top5:.1f}", lost, None, paper, None))
    return rows


ITEM = Item("table2", "Table 2: accuracy without biases, and difference to Integrated Gradients", plan, table)
