"""Figure 2, left: top-1 accuracy while the contrast falls, x → αx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from axiograd.experiments import image_networks
from axiograd.experiments.chunks import Chunk, chunks, moments, stored
from axiograd.experiments.image_networks import Family, in_alexnets_role
from axiograd.experiments.item import Cell, Item, Plan, Setting, Table, Work
from axiograd.experiments.records import Records
from axiograd.report import _canvas as canvas
from axiograd.report.colours import LINES

FACTORS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
BATCH = 20
#: Images in a piece.
SIZES: Mapping[str, int] = {"quick": 100, "real": 100, "full": 1000}


def measure(family: Family, form: str, chunk: Chunk, setting: Setting) -> dict[str, Any]:
    """For each contrast, 100 where the predicted class is the label and 0 where not."""
    model, data = image_networks.network(family, form, setting), image_networks.images(family, setting)
    correct: dict[str, list[float]] = {f"{factor:g}": [] for factor in FACTORS}
    for start in range(0, len(chunk.indices), BATCH):
        inputs, labels = image_networks.batch(data, chunk.indices[start : start + BATCH], family)
        for factor in FACTORS:
            with torch.no_grad():
                right = model(factor * inputs).argmax(1) == labels
            correct[f"{factor:g}"] += (100.0 * right).tolist()
    return stored(correct, per_image=setting.scale != "full")


def plan(setting: Setting) -> Plan:
    """All networks on a chunk before the next chunk."""
    found = in_alexnets_role(setting.scale)
    sets = {family.key: image_networks.images(family, setting) for family in found}

    def stage(_: Records) -> Sequence[Work]:
        return [
            Work(
                {"network": family.key, "form": form, "images": chunk.key},
                partial(measure, family, form, chunk, setting),
                len(chunk.indices),
            )
            for family in found
            for chunk in chunks(image_networks.order(sets[family.key], setting.seed), SIZES[setting.scale])
            for form in family.forms
        ]

    names = " and ".join(dict.fromkeys(data.name for data in sets.values()))
    settings = {**image_networks.described(setting), "factors": list(FACTORS), "scale": setting.scale}
    return Plan(names, settings, (stage,))


def curves(records: Records) -> dict[str, dict[float, float]]:
    """Accuracy by network and contrast."""
    return {
        family.name(form): {factor: moments(pieces, f"{factor:g}").mean for factor in FACTORS}
        for family in in_alexnets_role(records.settings["scale"])
        for form in family.forms
        if (pieces := records.find(network=family.key, form=form))
    }


def table(records: Records) -> Table:
    """One line per contrast."""
    found = curves(records)
    rows: list[tuple[Cell, ...]] = [
        (f"{factor:g}", *(f"{curve[factor]:.1f}" for curve in found.values())) for factor in FACTORS
    ]
    return Table(("α", *found), tuple(rows), NOTES[records.settings["scale"]])


def figure(records: Records) -> Any:
    """Accuracy over contrast, falling from left to right as in the paper; one panel per network."""
    found = curves(records)
    groups = [f for f in in_alexnets_role(records.settings["scale"]) if any(f.name(form) in found for form in f.forms)]
    drawn = canvas.new_figure(3.4 * len(groups) + 0.2, 2.9)
    for axes, family in zip(drawn.subplots(1, len(groups), squeeze=False)[0], groups, strict=True):
        for place, form in enumerate(family.forms):
            curve = found.get(family.name(form), {})
            axes.plot(
                list(curve), list(curve.values()), color=LINES[place], marker="os^"[place], ms=3, lw=1.5, label=form
            )
        axes.set_xlim(1.03, -0.03)
        axes.set_ylim(bottom=0)
        canvas.plain_chart(axes, x_label="contrast α", y_label="top-1 accuracy (%)")
        canvas.title_axes(axes, family.label)
        canvas.legend(axes, loc="lower left")
    return drawn


_COMMON = (
    "Top-1 accuracy in per cent of images multiplied by α after normalisation. The paper's figure shows that of "
    "AlexNet fall with the contrast and that of X-AlexNet unaffected; it gives no numbers."
)
NOTES: Mapping[str, str] = {
    "quick": _COMMON,
    "real": f"{_COMMON} The photos are probably training images: these are no validation accuracies.",
    "full": _COMMON,
}

ITEM = Item("fig2-left", "Figure 2, left: accuracy at low contrast", plan, table, figure)
