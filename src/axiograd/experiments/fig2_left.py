"""Figure 2, left: top-1 accuracy while the contrast falls, x → αx; with the networks trained for Table 2 beside."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

import torch

from axiograd.experiments import image_networks
from axiograd.experiments.chunks import Chunk, average, of_families, stored, work_on
from axiograd.experiments.image_networks import Family, in_alexnets_role
from axiograd.experiments.item import Cell, Item, Plan, Setting, Table
from axiograd.experiments.records import RecordedPiece, Records, read
from axiograd.experiments.table2_training import N_CONTRAST, NETWORKS
from axiograd.report import canvas
from axiograd.report.colours import LINES

FACTORS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
BATCH = 20
#: Images in a piece.
SIZES: Mapping[str, int] = {"quick": 100, "real": 100, "full": 1000}
#: Fewer images of a network that takes long.
FEWER = {"resnet50": (100, 40)}


def measure(family: Family, form: str, chunk: Chunk, setting: Setting) -> dict[str, Any]:
    """For each contrast, 100 where the predicted class is the label and 0 where not."""
    model, data = image_networks.network(family, form, setting), image_networks.images(family, setting)
    correct: dict[str, list[float]] = {f"{factor:g}": [] for factor in FACTORS}
    for inputs, labels in image_networks.batches(data, chunk.indices, family, BATCH):
        for factor in FACTORS:
            with torch.no_grad():
                right = model(factor * inputs).argmax(1) == labels
            correct[f"{factor:g}"] += (100.0 * right).tolist()
    return stored(correct, per_image=setting.scale != "full")


def plan(setting: Setting) -> Plan:
    """All networks on a chunk before the next chunk."""
    families = in_alexnets_role(setting.scale)
    split = of_families(families, setting, (SIZES[setting.scale], None), FEWER)
    pairs = [(family, chunk) for family, found in split.items() for chunk in found]
    names = " and ".join(dict.fromkeys(image_networks.images(family, setting).name for family in families))
    settings = {**image_networks.described(setting), "factors": list(FACTORS), "scale": setting.scale}
    return Plan.of(names, settings, work_on(pairs, setting, measure))


#: What the networks of Table 2 are measured on.
_TESTED = f", {N_CONTRAST:,} test images"
#: Accuracy by contrast, by form, by network.
Curves = dict[str, dict[str, dict[float, float]]]


def curves(records: Records) -> Curves:
    """Of the networks measured here, and of those that were trained for Table 2."""
    found: Curves = {}
    for family in in_alexnets_role(records.settings["scale"]):
        for form in family.forms:
            pieces = records.find(network=family.key, form=form)
            if image_networks.CALIBRATED not in family.forms:
                pieces = judging(pieces, records.settings)
            if pieces:
                by_factor = {factor: average(pieces, f"{factor:g}").mean for factor in FACTORS}
                few = f", {FEWER[family.key][1]} photos" if family.key in FEWER else ""
                found.setdefault(family.label + few, {})[form] = by_factor
    return found | trained(records.path.parents[1] / "table2" / records.path.name)


def judging(pieces: Sequence[RecordedPiece], settings: Mapping[str, Any]) -> list[RecordedPiece]:
    """The pieces without the images that the conversions were calibrated on; those are spread over all images."""
    if settings["scale"] != "real" or not pieces:
        return list(pieces)
    n = max(piece.key["images"][1] for piece in pieces)
    # The order of `image_networks.order`, which needs no images.
    order = torch.randperm(n, generator=torch.Generator().manual_seed(settings["seed"])).tolist()
    left_out = set(image_networks.calibrating(n))
    kept = []
    for piece in pieces:
        here = [i not in left_out for i in order[slice(*piece.key["images"])]]
        values = {name: list(compress(found, here)) for name, found in piece.values.items()}
        kept.append(replace(piece, values=values))
    return kept


def trained(path: Path) -> Curves:
    """Means over the seeds of Table 2, where it has been run beside this figure."""
    found: Curves = {}
    if not path.exists():
        return found
    records = read(path)
    pieces = records.find(part="trained")
    networks = list(NETWORKS)
    curves_of = {(p.key["data"], p.key["network"], p.key["kind"]) for p in pieces}
    for data, name, kind in sorted(curves_of, key=lambda of: (of[0], networks.index(of[1]), of[2] == "X")):
        seeds = [
            p.values["contrast"]
            for p in pieces
            if (p.key["data"], p.key["network"], p.key["kind"]) == (data, name, kind)
        ]
        means = [statistics.fmean(each) for each in zip(*seeds, strict=True)]
        by_factor = dict(zip(records.settings["contrasts"], means, strict=True))
        found.setdefault(f"{NETWORKS[name].label}, {data}{_TESTED}", {})[kind] = by_factor
    return found


def table(records: Records) -> Table:
    """One line per network, one column per contrast."""
    rows: list[tuple[Cell, ...]] = [
        (name, form, *(f"{curve[factor]:.1f}" if factor in curve else None for factor in FACTORS))
        for name, forms in curves(records).items()
        for form, curve in forms.items()
    ]
    header = ("network", "form", *(f"α = {factor:g}" for factor in FACTORS))
    return Table(header, tuple(rows), NOTES[records.settings["scale"]])


def figure(records: Records) -> Any:
    """Accuracy over contrast, falling from left to right as in the paper; one panel per network."""
    found = curves(records)
    across = min(len(found), 3)
    down = -(-len(found) // across)
    drawn = canvas.new_figure(2.9 * across + 0.4, 2.5 * down + 0.2)
    panels = list(drawn.subplots(down, across, squeeze=False).ravel())
    for axes, (name, forms) in zip(panels, found.items(), strict=False):
        for place, (form, curve) in enumerate(forms.items()):
            style = {"color": LINES[place], "marker": "os^"[place], "markersize": 3, "linewidth": 1.5}
            axes.plot(list(curve), list(curve.values()), label=form, **style)
        axes.set_xlim(1.03, -0.03)
        axes.set_ylim(bottom=0)
        canvas.plain_chart(axes, x_label="contrast α", y_label="top-1 accuracy (%)")
        canvas.title_axes(axes, name.removesuffix(_TESTED).replace(", ", "\n", 1))
        canvas.legend(axes, loc="lower left")
    for unused in panels[len(found) :]:
        unused.set_visible(False)
    return drawn


_COMMON = (
    "Top-1 accuracy in per cent of images multiplied by α after normalisation. The paper's figure shows that of "
    "AlexNet fall with the contrast and that of X-AlexNet unaffected; it gives no numbers. Networks of Table 2 "
    "that were trained here follow where that has been run, as means over its seeds: on the first "
    f"{N_CONTRAST:,} of their test images, so that α = 1 is not quite Table 2's accuracy, which is on all."
)
NOTES: Mapping[str, str] = {
    "quick": _COMMON,
    "real": f"{_COMMON} The photos are probably training images: these are no validation accuracies. The 16 that the "
    "conversions were calibrated on do not count, nor for ResNet-50 those that its calibrated strip was fitted to; its "
    "standard errors are 3 to 5 points at 95 to 90 %, and 8 at 50 %.",
    "full": _COMMON,
}

ITEM = Item("fig2-left", "Figure 2, left: accuracy at low contrast", plan, table, figure)
