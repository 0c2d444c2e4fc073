"""Pretrained networks as they are, stripped, carried, calibrated and lifted: what is kept, and what is explained.

Accuracy on images that nothing was converted with, the same at a tenth of the contrast, how far one backward pass is
from 128-step Integrated Gradients, and masking metrics against random attributions. ImageNet photos are probably
training images: losses compare, levels do not.
"""

import time
import warnings
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

import axiograd
from axiograd.attribution import InputXGradient, IntegratedGradients, RandomAttribution
from axiograd.datasets import tiny_imagenet
from axiograd.errors import NotFiniteError
from axiograd.homogeneity import Calibration
from axiograd.metrics import masking_curves
from experiments import lab, photos

FORMS = ("original", "strip", "carried", "calibrated", "bias-free", "lift")
#: Images that strip and lift are made with, and steps of the Integrated Gradients whose masks are compared.
EXAMPLES, MASKED_STEPS, CONTRAST = 16, 32, 0.1
#: More is better, or less.
METRICS = {"KPM": 1, "KNM": -1, "KAM": 1, "RAM": -1}
HITS = ("top1", "top5", "contrast", "among")


class Size(NamedTuple):
    """Images that convert, others that judge, and of these how many are compared with IG and how many are masked."""

    converting: int
    judging: int
    compared: int
    masked: int


SIZES = {
    "squeezenet1_1": Size(250, 250, 2, 12),
    "resnet18": Size(250, 500, 4, 24),
    "mobilenet_v2": Size(64, 250, 1, 8),
    "resnet50": Size(48, 250, 1, 4),
}
QUICK = {"small": Size(40, 40, 1, 2)}


def shuffled(data: Any) -> list[int]:
    return torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).tolist()


@cache
def converting(name: str, n: int) -> Tensor:
    """The first images of a random order; ResNet-18 has training images of its own for that."""
    data = photos.images(name)
    if name == "resnet18":
        data = tiny_imagenet("train", transform=photos.NETWORKS[name].preprocess)
    return default_collate([data[i] for i in shuffled(data)[:n]])[0]


def judging(name: str, size: Size) -> list[int]:
    first = 0 if name == "resnet18" else size.converting
    return shuffled(photos.images(name))[first : first + size.judging]


def converted(name: str, form: str, size: Size, n: int | None = None) -> tuple[nn.Module, float, int]:
    """One form of a network, the processor seconds that it took, and the images that it needed."""
    model = photos.load(name, "regular")
    images = converting(name, size.converting)[:n]
    start = time.process_time()
    if form == "original":
        return model, 0.0, 0
    how, given = {"strip": "strip", "carried": "carry", "lift": "lift"}.get(form, "calibrate"), {}
    if how == "calibrate":
        given["calibration"] = Calibration(images, read_biases=form == "calibrated")
    elif how != "carry":
        images = images[:EXAMPLES]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # how much is lost is what is measured
        made = axiograd.to_xdnn(model, images, how=how, **given).model
    made = made.eval().requires_grad_(False).to(memory_format=torch.channels_last)
    return made, time.process_time() - start, len(images)


@torch.no_grad()
def hits(model: nn.Module, name: str, size: Size) -> dict[str, list[bool]]:
    """Image by image: the top class, the first five, the top class at low contrast, and among the classes there are."""
    found = [(model(x), model(CONTRAST * x), y) for x, y in photos.batches(name, judging(name, size), 25)]
    outputs, fainter, labels = (torch.cat(part) for part in zip(*found, strict=True))
    best = outputs.topk(min(5, outputs.shape[1]), 1).indices == labels[:, None]
    classes = labels.unique()
    among = classes[outputs[:, classes].argmax(1)] == labels
    right = (best[:, 0], best.any(1), fainter.argmax(1) == labels, among)
    return {key: value.tolist() for key, value in zip(HITS, right, strict=True)}


def explained(model: nn.Module, name: str, size: Size, form: str) -> dict[str, Any]:
    """Σ|x ⊙ ∇F − IG| / Σ|IG| for the predicted class, and areas under masking curves for the label, above random's."""
    fast, order, errors = InputXGradient(model), judging(name, size), []
    for x, _ in photos.batches(name, order[: size.compared], 1):
        with torch.no_grad():
            target = model(x).argmax(1)
        exact = IntegratedGradients(model, 128, internal_batch_size=16).attribute(x, target)
        errors.append(float((fast.attribute(x, target) - exact).abs().sum() / exact.abs().sum()))
    methods = {"one": fast, "random": RandomAttribution(model, generator=torch.Generator().manual_seed(0))}
    if form == "original":
        methods["ig"] = IntegratedGradients(model, MASKED_STEPS, internal_batch_size=16)
    areas: dict[str, Any] = {name: {metric: [] for metric in METRICS} for name in methods}
    for x, y in photos.batches(name, order[: size.masked], 1):
        for method, by in methods.items():
            curves = masking_curves(model, x, by.attribute(x, y), y, max_rows=32)
            for metric in METRICS:
                areas[method][metric] += curves[metric].areas.tolist()
    return {"error": float(np.mean(errors)), **areas}


@lab.remember
def measured(name: str, form: str, quick: bool) -> dict[str, Any]:
    """What a form keeps, and what its attributions are worth; nothing of one whose outputs overflow."""
    size = (QUICK if quick else SIZES)[name]
    model, seconds, images = converted(name, form, size)
    try:
        found = explained(model, name, size, form)
    except NotFiniteError:
        found = {}
    return {**hits(model, name, size), **found, "seconds": seconds, "images": images}


def run(*, quick: bool) -> lab.Result:
    """Network by network, form by form."""
    return summary(
        {(name, form): measured(name, form, quick) for name in (QUICK if quick else SIZES) for form in FORMS}
    )


def summary(found: dict[tuple[str, str], dict[str, Any]]) -> lab.Result:
    """A line for each network and form."""
    rows = []
    for (name, form), values in found.items():
        label, right = photos.NETWORKS[name].label, {key: 100.0 * np.asarray(values[key]) for key in HITS}
        lost = [100.0 * np.asarray(found[name, "original"][key]) - right[key] for key in ("top1", "top5")]
        changed = form != "original"
        rows.append(
            {
                "network": label,
                "form": form,
                **cell("top-1 %", right["top1"]),
                **cell("top-5 %", right["top5"]),
                **cell("top-1 lost", lost[0] if changed else ()),
                **cell("top-5 lost", lost[1] if changed else ()),
                **cell("top-1 % at α = 0.1", right["contrast"]),
                "error against IG(128)": values.get("error"),
                **gains(values, "one"),
                "processor s": f"{values['seconds']:.0f}" if changed else "",
                "images to convert": str(values["images"] or ""),
            }
        )
        if "ig" in values:
            rows.append({"network": label, "form": f"its IG({MASKED_STEPS})", **gains(values, "ig")})
    table = pd.DataFrame(rows)
    lost = table.groupby("form")["top-1 lost"]
    words = [f"{form} {lab.span(lost.get_group(form), 'z.1f')}" for form in FORMS[1:] if form in lost.groups]
    verdict = f"Points of top-1 that conversions lose ({', '.join(table['network'].unique())}): {', '.join(words)}."
    title = "Pretrained networks, stripped, carried, calibrated and lifted"
    return lab.Result(title, table, verdict, f"{NOTE}\n{told(found)}".strip(), DATA, "0")


def cell(name: str, values: Any) -> dict[str, float]:
    """Mean with its error; nothing of nothing."""
    mean, error = lab.mean(values) if len(values) else (float("nan"), float("nan"))
    return {name: mean, f"{name} ±": error}


def gains(values: dict[str, Any], method: str) -> dict[str, float]:
    """By how much each area is better than random's, image by image."""
    cells: dict[str, float] = {}
    for metric, sign in METRICS.items():
        pairs = np.asarray([values[by][metric] for by in (method, "random")] if method in values else [(), ()])
        cells |= cell(f"{metric} gain", sign * (pairs[0] - pairs[1]))
    return cells


def told(found: dict[tuple[str, str], dict[str, Any]]) -> str:
    """What ResNet-18 loses when it is told which classes its images are of."""
    right = {form: 100.0 * np.asarray(values["among"]) for (name, form), values in found.items() if name == "resnet18"}
    if not right:
        return ""
    first = right.pop("original")
    lost = {form: lab.mean(first - other) for form, other in right.items()}
    words = ", ".join(f"{form} {mean:z.1f} ± {error:.1f}" for form, (mean, error) in lost.items())
    return f"Told to choose among those 20 classes, the original has {first.mean():.1f} %, and lost are: {words}."


DATA = f"{photos.DATA}; Tiny ImageNet, 20 classes"
NOTE = """\
Labels are used by nothing but the judging. ImageNet photos are probably training images: what is lost compares, the
level does not. *Carried* multiplies each bias by the mean of its layer's input over that on the examples, without any
fitting. *Calibrated* reads biases off the input and fits weights, *bias-free* fits weights alone; where a form
overflows, it has no attributions. Accuracies are of images that converted nothing, ± standard error over them; what is
lost is paired. *Error* is the mean over images of Σ|x ⊙ ∇F − IG| / Σ|IG| with 128-step Integrated Gradients of the same
form, zero baseline in normalised space, target the predicted class. Gains are areas under the masking curves of one
gradient against those of random attributions of the same form (KPM and KNM in logits, KAM and RAM in per cent), signed
so that more is better; logits of different forms have different scales. Images that accuracy, error and gains rest on:
SqueezeNet 250, 2 and 12; ResNet-18 500, 4 and 24; MobileNetV2 250, 1 and 8; ResNet-50 250, 1 and 4. ResNet-18 tells 200
classes apart, and is judged and calibrated on images of 20 of them: what it gains may be that it comes to know them."""
