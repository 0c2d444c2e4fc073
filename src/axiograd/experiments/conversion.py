"""Pretrained networks as they are, stripped, calibrated, distilled and lifted: what is kept, and what is explained.

Accuracy on images that calibrated nothing, the same at a tenth of the contrast, how far one backward pass is from
128-step Integrated Gradients, masking metrics against random attributions, and accuracy by the number of images that
calibrate. ImageNet photos are probably training images: losses compare, levels do not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from axiograd.attribution import InputXGradient, IntegratedGradients, RandomAttribution
from axiograd.errors import NotFiniteError
from axiograd.experiments import image_networks
from axiograd.experiments.chunks import Average, rounded
from axiograd.experiments.conversion_forms import (
    RECIPE,
    SUBJECTS,
    TAUGHT,
    TEACHING,
    Pretrained,
    data_of,
    make,
    noisy_photos,
    order,
)
from axiograd.experiments.denoising import psnr
from axiograd.experiments.item import Cell, Item, Plan, Setting, Table, Work
from axiograd.experiments.records import Records
from axiograd.homogeneity import to_xdnn
from axiograd.metrics import masking_curves
from axiograd.models import get_model
from axiograd.report import canvas
from axiograd.report.colours import LINES

STEPS, ROWS, BATCH, COPIES = 128, 16, 25, 32
#: Steps of the Integrated Gradients whose masks are compared.
MASKED_STEPS = 32
CONTRAST = 0.1
#: Numbers of calibration images, and the networks that are calibrated on each.
COUNTS: Mapping[str, tuple[int, ...]] = {"quick": (20, 40), "real": (8, 16, 32, 64, 125, 250)}
COUNTED = ("small", "squeezenet1_1", "resnet18")
#: The network whose images are of a part of its classes.
PART_OF_CLASSES = "resnet18"
#: Forms of a denoiser that was trained without biases.
DENOISED = ("original", "strip", "lift")
#: More is better, or less.
METRICS: Mapping[str, int] = {"KPM": 1, "KNM": -1, "KAM": 1, "RAM": -1}


def accuracy(subject: Pretrained, form: str, setting: Setting, n: int | None = None) -> dict[str, Any]:
    """Hits image by image, as 1 and 0: the top class, the first five, and the top class at a tenth of the contrast."""
    made, data = make(subject, form, setting, n), data_of(subject, setting)
    hits: dict[str, str] = {"top1": "", "top5": "", "contrast": ""}
    judged, _ = order(subject, setting)
    for inputs, labels in image_networks.batches(data, judged, subject.family, BATCH):
        with torch.no_grad():
            outputs = made.model(inputs)
            fainter = made.model(CONTRAST * inputs).argmax(1) == labels if n is None else labels[:0]
        best = outputs.topk(min(5, outputs.shape[1]), 1).indices == labels[:, None]
        found = {"top1": best[:, 0], "top5": best.any(1), "contrast": fainter}
        hits = {name: hits[name] + _written(right) for name, right in found.items()}
    constant = float(f"{made.constant_error:.3g}")
    return {**hits, "seconds": round(made.seconds, 1), "images": made.images, "constant_error": constant}


def among(subject: Pretrained, form: str, setting: Setting) -> dict[str, Any]:
    """Hits of a network that is told which classes its images are of: what it gains then, it has not from hearing so.

    A network that follows another on images of some classes comes to favour these; so told, the original does as well.
    """
    model, data = make(subject, form, setting).model, data_of(subject, setting)
    judged, found = order(subject, setting)[0], []
    for inputs, labels in image_networks.batches(data, judged, subject.family, BATCH):
        with torch.no_grad():
            found.append((model(inputs), labels))
    outputs, labels = (torch.cat(each) for each in zip(*found, strict=True))
    classes = labels.unique()
    return {"top1": _written(classes[outputs[:, classes].argmax(1)] == labels), "classes": len(classes)}


def _written(right: Tensor) -> str:
    return "".join(str(int(each)) for each in right.tolist())


def attributions(subject: Pretrained, form: str, setting: Setting) -> dict[str, Any]:
    """What the attributions of a form are worth; of one whose outputs overflow, that they do."""
    try:
        return explained(subject, form, setting)
    except NotFiniteError as error:
        return {"not_finite": str(error)}


def explained(subject: Pretrained, form: str, setting: Setting) -> dict[str, Any]:
    """Σ|x ⊙ ∇F − IG| / Σ|IG| for the predicted class, and areas under masking curves for the label."""
    model, data = make(subject, form, setting).model, data_of(subject, setting)
    judged, errors = order(subject, setting)[0], []
    for inputs, target in image_networks.predicted(model, data, judged[: subject.compared], subject.family):
        errors.append(apart(model, inputs, target))
    draws = torch.Generator().manual_seed(setting.seed)
    methods = {"one": InputXGradient(model), "random": RandomAttribution(model, generator=draws)}
    if form == "original":
        methods["ig"] = IntegratedGradients(model, MASKED_STEPS, internal_batch_size=ROWS)
    areas: dict[str, Any] = {name: {metric: [] for metric in METRICS} for name in methods}
    for inputs, labels in image_networks.batches(data, judged[: subject.masked], subject.family, 1):
        for name, method in methods.items():
            curves = masking_curves(model, inputs, method.attribute(inputs, labels), labels, max_rows=COPIES)
            for metric in METRICS:
                areas[name][metric] += rounded(curves[metric].areas.tolist())
    return {"attribution_error": statistics.fmean(errors), "compared": len(errors), **areas}


def denoising(form: str, setting: Setting) -> dict[str, Any]:
    """Peak signal-to-noise ratio in dB of photos with noise of σ = 25/255, at full contrast and at a tenth of it."""
    clean, noisy = noisy_photos(setting)
    model = get_model("xdncnn", weights="default").eval().requires_grad_(False)
    start, images = time.process_time(), 0
    if form != "original":
        model, images = to_xdnn(model, noisy[:2], how="strip" if form == "strip" else "lift").model.eval(), 2
    seconds = time.process_time() - start
    with torch.no_grad():
        found = {"psnr": model(noisy), "contrast": model(CONTRAST * noisy) / CONTRAST}
    levels = {name: rounded(psnr(made, clean).tolist()) for name, made in found.items()}
    error = apart(model, noisy[:1], _centre)
    return {**levels, "seconds": round(seconds, 1), "images": images, "attribution_error": error}


def apart(model: nn.Module, inputs: Tensor, target: Any) -> float:
    """Σ|x ⊙ ∇F − IG| / Σ|IG|."""
    fast = InputXGradient(model).attribute(inputs, target)
    exact = IntegratedGradients(model, STEPS, internal_batch_size=ROWS).attribute(inputs, target)
    return float((fast - exact).abs().sum() / exact.abs().sum())


def _centre(outputs: Tensor) -> Tensor:
    """The score of a denoiser: the pixel in the middle."""
    return outputs[:, 0, outputs.shape[2] // 2, outputs.shape[3] // 2]


def plan(setting: Setting) -> Plan:
    """Network by network: every form's accuracy, then its attributions; then calibration on fewer images."""
    subjects = SUBJECTS[setting.scale]

    work: list[Work] = []
    for subject in subjects:
        for form in subject.forms:
            key: dict[str, Any] = {"network": subject.family.key, "form": form}
            work.append(Work({"part": "accuracy", **key}, partial(accuracy, subject, form, setting)))
            work.append(Work({"part": "attributions", **key}, partial(attributions, subject, form, setting)))
            if subject.family.key == PART_OF_CLASSES:
                work.append(Work({"part": "among", **key}, partial(among, subject, form, setting)))
    work += [
        Work({"part": "denoising", "network": "xdncnn", "form": form}, partial(denoising, form, setting))
        for form in (DENOISED if setting.scale == "real" else ())
    ]
    for subject in subjects:
        for n in COUNTS[setting.scale] if subject.family.key in COUNTED else ():
            if n < subject.calibrate:
                key = {"part": "images", "network": subject.family.key, "images": n}
                work.append(Work(key, partial(accuracy, subject, "calibrated", setting, n)))
    # What takes longest comes last.
    work.sort(key=lambda one: one.key.get("form") in {"distilled", "taught"})
    names = "; ".join(dict.fromkeys(data_of(subject, setting).name for subject in subjects))
    settings = {"seed": setting.seed, "steps": STEPS, "masked_steps": MASKED_STEPS, "contrast": CONTRAST}
    return Plan.of(names, {**settings, "distillation": str(RECIPE), "scale": setting.scale}, work)


def table(records: Records) -> Table:
    """A line for each network and form."""
    rows: list[tuple[Cell, ...]] = []
    for subject in SUBJECTS[records.settings["scale"]]:
        network, label = subject.family.key, subject.family.label
        regular = records.get(part="accuracy", network=network, form="original")
        for form in subject.forms:
            found = records.get(part="accuracy", network=network, form=form)
            if found is None:
                continue
            explained = records.get(part="attributions", network=network, form=form)
            rows.append((label, form, *_kept(found, regular, form), *_explained(explained, "one"), *_cost(found)))
            if explained is not None and form == "original":
                rows.append((label, f"its IG({MASKED_STEPS})", *[None] * 5, *_explained(explained, "ig"), None, None))
    for form in DENOISED:
        found = records.get(part="denoising", network="xdncnn", form=form)
        if found is not None:
            levels = [f"{Average.of(found[name]).text(2)} dB" for name in ("psnr", "contrast")]
            error = f"{found['attribution_error']:.2g}"
            rows.append(("bias-free DnCNN", form, levels[0], *[None] * 3, levels[1], error, *[None] * 4, *_cost(found)))
    gains = tuple(f"{metric} gain" for metric in METRICS)
    kept = ("top-1 %", "top-5 %", "top-1 lost", "top-5 lost", f"top-1 % at α = {CONTRAST:g}")
    header = ("network", "form", *kept, "error against IG(128)", *gains, "processor s", "images to convert")
    return Table(header, tuple(rows), " ".join([NOTE, *_counted(records), *_told(records)]))


def _counted(records: Records) -> list[str]:
    """On how many images the numbers of each network rest."""
    found = []
    for subject in SUBJECTS[records.settings["scale"]]:
        network = subject.family.key
        judged = records.get(part="accuracy", network=network, form="original")
        explained = records.get(part="attributions", network=network, form="original")
        if judged is not None and explained is not None and "one" in explained:
            masked = len(next(iter(explained["one"].values())))
            found.append(f"{subject.family.label} {len(judged['top1'])}, {explained['compared']} and {masked}")
    return [f"Images that accuracy, error and gains rest on: {'; '.join(found)}."] if found else []


def _told(records: Records) -> list[str]:
    """A sentence on the network that is told which classes its images are of."""
    found = {piece.key["form"]: piece.values for piece in records.find(part="among")}
    if "original" not in found:
        return []
    regular = found.pop("original")
    lost = [f"{form} {_lost(regular['top1'], values['top1'])}" for form, values in found.items()]
    sentence = (
        f"Told to choose among those {regular['classes']} classes, the original has "
        f"{_share(regular['top1']).text(1)} % top-1, and of it the others lose, in points: {', '.join(lost)}."
    )
    return [sentence]


def _lost(before: str, after: str) -> str:
    """Points that are lost, image by image."""
    pairs = zip(before, after, strict=True)
    return Average.of([100.0 * (int(one) - int(other)) for one, other in pairs]).text(1)


def _share(hits: str) -> Average:
    return Average.of([100.0 * int(hit) for hit in hits])


def _kept(found: Mapping[str, Any], regular: Mapping[str, Any] | None, form: str) -> list[Cell]:
    cells: list[Cell] = [_share(found["top1"]).text(1), _share(found["top5"]).text(1)]
    for name in ("top1", "top5"):
        if regular is None or form == "original":
            cells.append(None)
        else:
            cells.append(_lost(regular[name], found[name]))
    return [*cells, _share(found["contrast"]).text(1) if found["contrast"] else None]


def _explained(found: Mapping[str, Any] | None, method: str) -> list[Cell]:
    """The error against IG, and by how much each area is better than random's, image by image."""
    if found is None:
        return [None] * (1 + len(METRICS))
    if "not_finite" in found:
        return ["overflows", *[None] * len(METRICS)]
    gains = []
    for metric, sign in METRICS.items():
        pairs = zip(found[method][metric], found["random"][metric], strict=True)
        gains.append(Average.of([sign * (area - random) for area, random in pairs]).text(2))
    return [f"{found['attribution_error']:.2g}" if method == "one" else None, *gains]


def _cost(found: Mapping[str, Any]) -> list[Cell]:
    return [f"{found['seconds']:.0f}", found["images"]] if found["images"] else [None, None]


def figure(records: Records) -> Any:
    """Accuracy over the number of calibration images, the original's as a line; one panel per network."""
    subjects = [s for s in SUBJECTS[records.settings["scale"]] if records.find(part="images", network=s.family.key)]
    drawn = canvas.new_figure(2.9 * max(1, len(subjects)) + 0.4, 2.7)
    panels = list(drawn.subplots(1, max(1, len(subjects)), squeeze=False).ravel())
    for axes, subject in zip(panels, subjects, strict=False):
        network = subject.family.key
        points = {p.key["images"]: p.values["top1"] for p in records.find(part="images", network=network)}
        for form, at in (("calibrated", subject.calibrate), ("original", 0)):
            known = records.get(part="accuracy", network=network, form=form)
            if known is not None and at:
                points[at] = known["top1"]
            elif known is not None:
                axes.axhline(_share(known["top1"]).mean, color=LINES[1], linewidth=1.2, label="original")
        counts = sorted(points)
        shares = [_share(points[n]) for n in counts]
        errors = [0.0 if s.standard_error is None else s.standard_error for s in shares]
        style = {"color": LINES[0], "marker": "o", "markersize": 3, "linewidth": 1.5, "capsize": 2}
        axes.errorbar(counts, [s.mean for s in shares], errors, label="calibrated", **style)
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, [str(n) for n in counts])
        axes.set_xticks([], minor=True)
        axes.set_ylim(bottom=0)
        canvas.plain_chart(axes, x_label="calibration images", y_label="top-1 accuracy (%)")
        canvas.title_axes(axes, subject.family.label)
        canvas.legend(axes, loc="lower right")
    return drawn


NOTE = (
    "Labels are used by nothing but the judging. ImageNet photos are probably training images: what is lost compares, "
    "the level does not. *Calibrated* reads biases off the input and fits weights, *bias-free* fits weights alone, "
    "*distilled* follows the calibrated one on the same images, *bias-free, distilled* the bias-free one on further "
    "images too; *taught* does so with the original's Integrated "
    f"Gradients in the loss ({TAUGHT.steps} steps, windows of {TAUGHT.window} pixels, weight {TAUGHT.weight:g}, "
    f"{TEACHING.epochs} epochs at a rate of {TEACHING.lr:g}), which SqueezeNet, whose logits end in a ReLU, does not "
    "survive. Accuracies are of images that calibrated and taught nothing, ± standard error over them; what is lost is "
    "paired. ResNet-18 tells 200 classes apart, and is judged, calibrated and distilled on images of 20 of them: what "
    "it gains so may be that it comes to know these. *Error* is the mean over images of "
    "Σ|x ⊙ ∇F − IG| / Σ|IG| with 128-step Integrated Gradients of the same form of the network, zero baseline in "
    "normalised space, target the predicted class. Gains are areas under the masking curves of one gradient against "
    "those of random attributions of the same network (KPM and KNM in logits, KAM and RAM in per cent), signed so that "
    "more is better; logits of different forms have different scales where a conversion changed them. The denoiser has "
    "no biases to begin with, so that nothing is changed; its accuracy is the peak signal-to-noise ratio, and its "
    "attributed output the pixel in the middle."
)

ITEM = Item(
    "conversion",
    "Pretrained networks, stripped, calibrated and lifted",
    plan,
    table,
    figure,
    scales=("quick", "real"),
)
