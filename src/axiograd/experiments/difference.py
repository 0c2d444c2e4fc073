"""Table 2, right half: how far one backward pass is from Integrated Gradients, on regular networks and on X-DNNs.

Input×Gradient for regular networks, X-Gradient for X-DNNs, against Integrated Gradients with 128 steps and the zero
baseline (zero after normalisation); the attributed output is the predicted class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from axiograd.attribution import InputXGradient, IntegratedGradients, XGradient
from axiograd.experiments import image_networks
from axiograd.experiments.chunks import Chunk, PieceSize, average, in_turn, of_families, stored, work_on
from axiograd.experiments.image_networks import FAMILIES, Family
from axiograd.experiments.item import Cell, Item, Plan, Setting, Table
from axiograd.experiments.paper import TABLE2_DIFFERENCE
from axiograd.experiments.records import Records
from axiograd.metrics import mean_absolute_relative_difference

STEPS, ROWS = 128, 16
SIZES: Mapping[str, PieceSize] = {"quick": (20, 40), "real": (4, 60), "full": (50, None)}
#: Fewer images of a network whose Integrated Gradients take minutes each.
FEWER: Mapping[str, PieceSize] = {"resnet50": (4, 4)}
#: Of one image: with and without the components near zero, how many these are, and how far off.
VALUES = ("value", "plain", "excluded_fraction", "excluded_difference")


def measure(family: Family, form: str, chunk: Chunk, setting: Setting) -> dict[str, Any]:
    """The mean absolute relative difference of each image."""
    model, data = image_networks.network(family, form, setting), image_networks.images(family, setting)
    single = (InputXGradient if form == "regular" else XGradient)(model)
    integrated = IntegratedGradients(model, STEPS, internal_batch_size=ROWS)
    found: dict[str, list[float]] = {name: [] for name in VALUES}
    for inputs, target in image_networks.predicted(model, data, chunk.indices, family):
        fast, exact = (method.attribute(inputs, target) for method in (single, integrated))
        of_image = vars(mean_absolute_relative_difference(fast, exact))
        # An image whose IG is zero everywhere has no relative difference.
        if math.isfinite(of_image["value"]):
            for name in VALUES:
                found[name].append(of_image[name])
    return stored(found, per_image=setting.scale != "full")


def plan(setting: Setting) -> Plan:
    """All networks on a chunk before the next chunk."""
    families = FAMILIES[setting.scale]
    split = of_families(families, setting, SIZES[setting.scale], FEWER)
    names = "; ".join(dict.fromkeys(image_networks.images(family, setting).name for family in families))
    counts = {family.key: found[-1].stop for family, found in split.items()}
    settings = {**image_networks.described(setting), "images": counts, "steps": STEPS, "scale": setting.scale}
    return Plan.of(names, settings, work_on(in_turn(split), setting, measure))


def table(records: Records) -> Table:
    """One line per network, in per cent, beside the paper's."""
    rows: list[tuple[Cell, ...]] = []
    for family in FAMILIES[records.settings["scale"]]:
        for form in family.forms:
            pieces = records.find(network=family.key, form=form)
            if not pieces:
                continue
            value, plain, excluded, _ = (average(pieces, name) for name in VALUES)
            paper = TABLE2_DIFFERENCE[family.paper][form != "regular"] if family.paper else None
            error = "" if value.standard_error is None else f" ± {100 * value.standard_error:.2g}"
            method = "Input×Gradient" if form == "regular" else "X-Gradient"
            ours = (f"{100 * value.mean:.3g}{error}", f"{100 * plain.mean:.3g}", f"{100 * excluded.mean:.2g}")
            rows.append((family.name(form), method, *ours, family.paper, paper, value.n))
    header = (
        "network", "method", "difference (%)", "all components (%)", "left out (%)", "paper's network", "paper (%)",
        "images",
    )  # fmt: skip
    return Table(header, tuple(rows), NOTE + (_OTHERS if records.settings["scale"] == "real" else ""))


NOTE = (
    "Mean absolute relative difference to Integrated Gradients with 128 steps (appendix B.1), mean ± standard error "
    "over images. Where |IG| is at most a thousandth of the image's mean |IG| the quotient measures rounding; those "
    "components are left out of the first number and counted; the formula over all components stands beside it. What "
    "an X-DNN differs by is the error of 128 steps and of float32, not of X-Gradient."
)
_OTHERS = (
    " On regular networks ours are larger than the paper's: they are other networks, and the paper does not say how it "
    "treats components near zero. What compares is how far apart the two kinds of network are. ResNet-18 and "
    "MobileNetV2 that were stripped without calibration no longer classify; their gradients are IG all the same. The "
    f"calibrated ResNet-50 is a strip that was fitted to {image_networks.FITTED} photos."
)

ITEM = Item("difference", "Table 2, right half: difference to Integrated Gradients", plan, table)
