"""Pretrained networks as they are, stripped and lifted: accuracy, and how far one backward pass is from 128-step IG.

No training at all. SqueezeNet 1.1 and MobileNetV2 see ImageNet photos (probably training images: these are no
validation accuracies), ResNet-18 sees Tiny ImageNet val.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from axiograd.attribution import InputXGradient, IntegratedGradients
from axiograd.datasets import tiny_imagenet
from axiograd.experiments import image_networks
from axiograd.experiments.image_networks import CALIBRATION, FAMILIES, Family
from axiograd.experiments.item import Cell, Item, Plan, Setting, Table, Work
from axiograd.experiments.records import Records
from axiograd.experiments.table2_converted import hits
from axiograd.homogeneity import to_xdnn

FORMS = ("original", "strip", "lift")
STEPS, ROWS = 128, 16
#: Images per network, all if None, and images that are attributed.
SIZES: Mapping[str, tuple[int | None, int]] = {"quick": (40, 2), "real": (None, 4)}


def drawn(family: Family, setting: Setting) -> tuple[Tensor, list[int]]:
    """Images to calibrate on, and those to measure on in a random order."""
    data = image_networks.images(family, setting)
    source = tiny_imagenet("train", transform=family.preprocess) if family.key == "resnet18" else data
    rng = np.random.default_rng(setting.seed)
    examples = torch.stack([source[int(i)][0] for i in rng.choice(len(source), CALIBRATION, replace=False)])
    return examples, rng.permutation(len(data))[: SIZES[setting.scale][0]].tolist()


def measure(family: Family, form: str, setting: Setting) -> dict[str, Any]:
    """Accuracies in per cent, and the mean over images of Σ|x ⊙ ∇F − IG| / Σ|IG| for the predicted class."""
    examples, indices = drawn(family, setting)
    model, edits = image_networks.network(family, "regular", setting), 0
    if form != "original":
        conversion = to_xdnn(model, examples, how="strip" if form == "strip" else "lift")
        model, edits = conversion.model.eval(), len(conversion.edits)
    found = hits(model, family, indices, setting)
    data, errors = image_networks.images(family, setting), []
    for index in indices[: SIZES[setting.scale][1]]:
        image, _ = image_networks.batch(data, [index], family)
        with torch.no_grad():
            target = model(image).argmax(1)
        fast = InputXGradient(model).attribute(image, target)
        exact = IntegratedGradients(model, STEPS, internal_batch_size=ROWS).attribute(image, target)
        errors.append(float((fast - exact).abs().sum() / exact.abs().sum()))
    accuracies = {name: 100 * found[name] / len(indices) for name in ("top1", "top5")}
    error = statistics.fmean(errors)
    return {"images": len(indices), **accuracies, "edits": edits, "attribution_error": error, "attributed": len(errors)}


def plan(setting: Setting) -> Plan:
    """Every network in every form."""
    families = FAMILIES[setting.scale]

    def stage(_: Records) -> Sequence[Work]:
        return [
            Work({"network": family.key, "form": form}, partial(measure, family, form, setting))
            for family in families
            for form in FORMS
        ]

    names = "; ".join(dict.fromkeys(image_networks.images(family, setting).name for family in families))
    return Plan(names, {**image_networks.described(setting), "steps": STEPS, "scale": setting.scale}, (stage,))


def table(records: Records) -> Table:
    """A line for each network and form."""
    rows: list[tuple[Cell, ...]] = []
    for family in FAMILIES[records.settings["scale"]]:
        for form in FORMS:
            found = records.get(network=family.key, form=form)
            if found is not None:
                ours = (f"{found['top1']:.1f}", f"{found['top5']:.1f}", f"{found['attribution_error']:.2g}")
                rows.append((family.label, form, found["edits"], *ours, found["images"], found["attributed"]))
    header = ("network", "form", "edits", "top-1 %", "top-5 %", "error against IG(128)", "images", "attributed")
    return Table(header, tuple(rows), NOTE)


NOTE = (
    "No training. ImageNet photos are probably training images: these are not validation accuracies. *Error* is the "
    "mean over images of Σ|x ⊙ ∇F − IG| / Σ|IG| with 128-step Integrated Gradients of the same form of the network, "
    "zero baseline in normalised space, target the predicted class."
)

ITEM = Item(
    "conversion", "Pretrained networks, stripped and lifted without training", plan, table, scales=("quick", "real")
)
