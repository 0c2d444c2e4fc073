"""Table 3: KPM, KNM, KAM and RAM of every method, on regular networks and on X-DNNs.

A piece is one method on one network and a chunk of images; what is drawn in it depends on the seed and the chunk alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import torch

from axiograd.attribution.methods import find_method
from axiograd.experiments import image_networks
from axiograd.experiments.chunks import Average, Chunk, PieceSize, average, in_turn, of_families, stored
from axiograd.experiments.image_networks import Family, in_alexnets_role
from axiograd.experiments.item import Cell, Item, Plan, Setting, Table, Work
from axiograd.experiments.paper import TABLE3
from axiograd.experiments.records import RecordedPiece, Records
from axiograd.metrics import masking_curves

METRICS = ("KPM", "KNM", "KAM", "RAM")
#: Photos attributed at once, gradients at once, and masked copies at once.
BATCH, ROWS, COPIES = 4, 16, 32
STEPS = 128

#: The rows, by the names of `axiograd.attribution.methods`.
METHODS: Mapping[str, str] = {
    "IG (128)": "integrated-gradients",
    "Random": "random",
    "Grad (1)": "gradient",
    "EG (1)": "expected-gradients",
    "Input×Gradient (1)": "input-x-gradient",
    "X-Gradient (1)": "x-gradient",
    "Occlusion": "occlusion",
}
#: A perturbation method beside the paper's, on so many of the images: it takes a pass for every window.
PERTURBED, PERTURBED_IMAGES = "Occlusion", 20
#: On an X-DNN, Input×Gradient is X-Gradient; on a regular network there is no X-Gradient.
ONLY = {"Input×Gradient (1)": False, "X-Gradient (1)": True}
SIZES: Mapping[str, PieceSize] = {"quick": (40, 80), "real": (20, None), "full": (250, None)}
#: Fewer images of a network that takes minutes for each, and fewer in a piece.
FEWER: Mapping[str, PieceSize] = {"resnet50": (2, 6)}
#: Below so many images, pairs that are close are counted and not named.
FEW = 20


def measure(family: Family, form: str, method: str, chunk: Chunk, setting: Setting) -> dict[str, Any]:
    """The four areas of each image."""
    model, data = image_networks.network(family, form, setting), image_networks.images(family, setting)
    generator = torch.Generator().manual_seed(setting.seed * 100_003 + chunk.start)
    many = {"steps": STEPS, "internal_batch_size": ROWS} if method.startswith("IG") else {}
    attribution = find_method(METHODS[method]).build(model, references=data, generator=generator, **many)
    areas: dict[str, list[float]] = {metric: [] for metric in METRICS}
    for inputs, labels in image_networks.batches(data, chunk.indices, family, BATCH):
        found = attribution.attribute(inputs, labels)
        curves = masking_curves(model, inputs, found, labels, max_rows=COPIES)
        for metric in METRICS:
            areas[metric] += curves[metric].areas.tolist()
    return stored(areas, per_image=setting.scale != "full")


def plan(setting: Setting) -> Plan:
    """All methods of a chunk before the next chunk, so that what is there is comparable at any time."""
    families = in_alexnets_role(setting.scale)
    split = of_families(families, setting, SIZES[setting.scale], FEWER)
    work = [
        Work(
            {"network": family.key, "form": form, "method": method, "images": chunk.key},
            partial(measure, family, form, method, chunk, setting),
            # In forward passes: about two for a gradient, and the masked copies.
            len(chunk.indices) * (64 + (2 * STEPS if method.startswith("IG") else 2)),
        )
        for family, chunk in in_turn(split)
        for form in family.forms
        for method in METHODS
        if ONLY.get(method, form != "regular") == (form != "regular")
        and (method != PERTURBED or (family is families[0] and chunk.start < PERTURBED_IMAGES))
    ]
    images = split[families[0]][-1].stop
    settings = {**image_networks.described(setting), "images": images, "scale": setting.scale}
    return Plan.of(image_networks.images(families[0], setting).name, settings, work)


def table(records: Records) -> Table:
    """One line per network and method, mean ± standard error over images, beside AlexNet's and X-AlexNet's."""
    rows: list[tuple[Cell, ...]] = []
    for family in in_alexnets_role(records.settings["scale"]):
        for form in family.forms:
            for method in METHODS:
                pieces = records.find(network=family.key, form=form, method=method)
                if not pieces:
                    continue
                found = [average(pieces, metric) for metric in METRICS]
                role = "AlexNet" if form == "regular" else "X-AlexNet"
                paper = TABLE3[role].get(method) if family.paper == "AlexNet" else None
                ours = [each.text(2) for each in found]
                theirs = [f"{value:.2f}" for value in paper] if paper else [None] * len(METRICS)
                rows.append((family.name(form), method, *ours, *theirs, found[0].n))
    arrows = ("KPM ↑", "KNM ↓", "KAM ↑", "RAM ↓")
    header = ("network", "method", *arrows, *(f"paper {arrow}" for arrow in arrows), "images")
    return Table(header, tuple(rows), " ".join([NOTES[records.settings["scale"]], *_sentences(records)]))


@dataclass(frozen=True)
class Compared:
    """Two methods that the paper has in an order, in one metric on one network."""

    said: str
    network: str
    #: 1 in the paper's order, −1 in the other, 0 where both are equal.
    sign: int
    #: By more than two standard errors of the paired difference.
    clearly: bool
    #: On how many images.
    n: int


def orders(records: Records) -> list[Compared]:
    """Every pair of methods that the paper has in an order, as it comes out here."""
    found = []
    for family in in_alexnets_role(records.settings["scale"]):
        for form in family.forms:
            paper = TABLE3["AlexNet" if form == "regular" else "X-AlexNet"]
            pieces = {m: records.find(network=family.key, form=form, method=m) for m in METHODS if m in paper}
            for (one, ours), (other, theirs) in combinations([item for item in pieces.items() if item[1]], 2):
                for place, metric in enumerate(METRICS):
                    apart, papers = paired(ours, theirs, metric), paper[one][place] - paper[other][place]
                    if papers:
                        said = f"{metric} of {one} minus {other}, {family.name(form)}: {apart.text(2)} "
                        said += f"(paper {papers:+.2f}; {apart.n} images)"
                        sign = (apart.mean * papers > 0) - (apart.mean * papers < 0)
                        clearly = abs(apart.mean) > 2 * (apart.standard_error or 0)
                        found.append(Compared(said, family.label, sign, clearly, apart.n))
    return found


def paired(ours: Sequence[RecordedPiece], theirs: Sequence[RecordedPiece], metric: str) -> Average:
    """The differences of one area, image by image, or from the means where images were not kept."""
    one, other = ([p.values[metric] for p in pieces] for pieces in (ours, theirs))
    if all(isinstance(values, list) for values in (*one, *other)) and [len(v) for v in one] == [len(v) for v in other]:
        return Average.of([a - b for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)])
    first, second = average(ours, metric), average(theirs, metric)
    return Average(min(first.n, second.n), first.mean - second.mean, first.squares + second.squares)


def _perturbed(records: Records) -> Iterator[str]:
    """What hiding windows does better or worse than one gradient, on the images that both have seen."""
    found = []
    for family in in_alexnets_role(records.settings["scale"]):
        for form in family.forms:
            ours = records.find(network=family.key, form=form, method=PERTURBED)
            one = "Input×Gradient (1)" if form == "regular" else "X-Gradient (1)"
            seen = [piece.key["images"] for piece in ours]
            theirs = [p for p in records.find(network=family.key, form=form, method=one) if p.key["images"] in seen]
            if ours and len(ours) == len(theirs):
                apart = ", ".join(f"{metric} {paired(ours, theirs, metric).text(2)}" for metric in METRICS)
                found.append(f"{family.name(form)}, minus {one}: {apart}")
    if found:
        yield f"{PERTURBED} hides windows of an eighth of a side; on the same images: {'; '.join(found)}."


def _sentences(records: Records) -> Iterator[str]:
    """How Occlusion compares, and where the order of the methods is not the paper's."""
    yield from _perturbed(records)
    every = orders(records)
    turned = [each for each in every if each.sign < 0]
    if not turned:
        return
    clear = [each.said for each in turned if each.clearly]
    yield f"Of {len(every)} pairs that the paper has in an order, {sum(each.sign > 0 for each in every)} are in it."
    if clear:
        yield f"The other way round by more than two standard errors of the paired difference: {'; '.join(clear)}."
    if within := [each for each in turned if not each.clearly]:
        # Of a few images, half of the close pairs come out either way.
        named = [each.said for each in within if each.n >= FEW]
        said = [*named, f"{len(within) - len(named)} pairs on few images"] if len(named) < len(within) else named
        yield f"The other way round within two standard errors: {'; '.join(said)}."
    if any("SqueezeNet 1.1, regular" in each.said for each in turned):
        yield (
            "On the regular SqueezeNet a likely reason is its last ReLU: its scores are never negative, and many "
            "masked images have the score 0, where AlexNet's go below."
        )


_COMMON = (
    "Areas under the masking curves, mean ± standard error over images; KPM and KNM in units of the target's logit, "
    "KAM and RAM in per cent of top-1 accuracy. The number in parentheses counts gradients. "
)
NOTES: Mapping[str, str] = {
    "quick": _COMMON + "The paper's columns are of AlexNet and X-AlexNet on ImageNet: other networks, other images, so "
    "only the order of the methods compares.",
    "real": _COMMON + "The paper's columns are of AlexNet and X-AlexNet on ImageNet's validation split; ours are of a "
    "pretrained SqueezeNet 1.1, a pretrained ResNet-50 and the X-DNNs made of them without training, on photos that "
    "they were probably trained on, so that at best the order of the methods compares, and not the numbers. The "
    f"calibrated ResNet-50 is a strip that was fitted to {image_networks.FITTED} photos, none of which judges.",
    "full": _COMMON,
}

ITEM = Item("table3", "Table 3: masking metrics of attribution methods", plan, table)
