"""Figure 2, right, and Figure 4: attributions of a regular network and of X-DNNs, at full and at low contrast.

Maps are kept beside the records, normalised as they are shown. Photos are not ours to publish: they appear only in the
figure that a run with the data writes besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from axiograd._io import write_atomically
from axiograd.attribution import Attribution, InputXGradient, IntegratedGradients, XGradient
from axiograd.errors import DataMissingError, MissingExtraError
from axiograd.experiments import image_networks
from axiograd.experiments.image_networks import Family, in_figures
from axiograd.experiments.item import Cell, Item, Plan, Setting, Table, Work
from axiograd.experiments.paper import FIG2_LOW_CONTRAST
from axiograd.experiments.records import RecordedPiece, Records
from axiograd.report import canvas
from axiograd.report.arrays import Limit, to_image
from axiograd.report.colours import matplotlib_map

STEPS, ROWS = 128, 16
CONTRASTS = (1.0, FIG2_LOW_CONTRAST)
#: Maps with longer sides are averaged over 2 × 2 pixels before they are kept.
LARGEST = 128
BYTE = 127
#: At most so many images of a network that takes minutes for each.
FEWER = {"resnet50": 1}


@dataclass(frozen=True)
class Panel:
    """One of the two figures."""

    name: str
    #: How many images, by scale; the paper's Figure 2 has one.
    images: int
    #: The class whose first image is taken, by its index in ImageNet; otherwise the first of a random order.
    classes: tuple[int, ...] = ()

    def chosen(self, family: Family, setting: Setting) -> list[int]:
        """The images, by their place in the data set."""
        data = image_networks.images(family, setting)
        wanted = [] if setting.scale == "quick" else list(self.classes)
        found = [i for c in wanted for i in (data.targets == c).nonzero().flatten().tolist()[:1]]
        n = min(self.images, FEWER.get(family.key, self.images))
        return (found or image_networks.order(data, setting.seed, family=family))[:n]


def methods(family: Family, form: str, setting: Setting) -> dict[str, Attribution]:
    """One backward pass, and Integrated Gradients."""
    model = image_networks.network(family, form, setting)
    integrated = IntegratedGradients(model, STEPS, internal_batch_size=ROWS)
    return {"I×G": InputXGradient(model), "IG": integrated} if form == "regular" else {
        "X-Gradient": XGradient(model),
        "IG": integrated,
    }  # fmt: skip


def columns(family: Family) -> list[tuple[str, str]]:
    """Form and method of every column: X-DNNs first, as in the paper."""
    forms = sorted(family.forms, key=lambda form: form == "regular")
    return [(form, name) for form in forms for name in (("I×G", "IG") if form == "regular" else ("X-Gradient", "IG"))]


def measure(family: Family, index: int, setting: Setting, folder: Path) -> dict[str, Any]:
    """All maps of an image, written to a file of their own, and how they differ."""
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise MissingExtraError("safetensors", "storage", "keeping attribution maps") from error
    data = image_networks.images(family, setting)
    inputs, labels = image_networks.batch(data, [index], family)
    found: dict[tuple[str, str, float], Tensor] = {}
    for form in family.forms:
        for name, method in methods(family, form, setting).items():
            for contrast in CONTRASTS:
                found[form, name, contrast] = method.attribute(contrast * inputs, labels)[0].double().cpu()
    rows = [[byte_map(found[form, name, contrast]) for form, name in columns(family)] for contrast in CONTRASTS]
    kept = {"maps": torch.stack([torch.stack(row) for row in rows])}
    if setting.scale == "quick":
        kept["image"] = (255 * family.preprocess.invert(inputs[0].cpu())).round().byte().contiguous()
    path = folder / f"{setting.scale}.{family.key}.{index}.safetensors"
    write_atomically(path, save(kept))
    label = data.classes[int(data.targets[index])]
    return {"class": label, "maps": path.name, "networks": {form: differences(found, form) for form in family.forms}}


def byte_map(attribution: Tensor) -> Tensor:
    """The sum over channels from −127 to 127, which are ± its 99th percentile or so."""
    summed = attribution.sum(0, keepdim=True)
    if max(summed.shape) > LARGEST:
        summed = F.avg_pool2d(summed, 2)
    limit = Limit.of([summed.numpy()]).value
    return (BYTE * summed[0] / limit).clamp(-BYTE, BYTE).round().to(torch.int8)


def differences(found: dict[tuple[str, str, float], Tensor], form: str) -> dict[str, float]:
    """Σ|A − IG| / Σ|IG| at each contrast, and 1 − cosine of the attributions at the two contrasts."""
    fast = next(name for each, name, _ in found if each == form and name != "IG")
    values = {}
    for contrast in CONTRASTS:
        exact = found[form, "IG", contrast]
        values[f"to_ig_{contrast:g}"] = float((found[form, fast, contrast] - exact).abs().sum() / exact.abs().sum())
    for name, method in (("fast", fast), ("ig", "IG")):
        high, low = (found[form, method, contrast].flatten() for contrast in CONTRASTS)
        values[f"change_{name}"] = 1 - float(F.cosine_similarity(high, low, dim=0))
    return {name: float(f"{value:.6g}") for name, value in values.items()}


def plan(panel: Panel, setting: Setting) -> Plan:
    """One piece per network and image."""
    families = in_figures(setting.scale)
    data = image_networks.images(families[0], setting)

    def stage(records: Records) -> Sequence[Work]:
        folder = records.path.parent
        return [
            Work({"network": family.key, "image": index}, partial(measure, family, index, setting, folder))
            for family in families
            for index in panel.chosen(family, setting)
        ]

    settings = {**image_networks.described(setting), "steps": STEPS, "contrasts": list(CONTRASTS)}
    return Plan(data.name, {**settings, "scale": setting.scale}, (stage,))


def of_families(records: Records) -> list[tuple[Family, RecordedPiece]]:
    """The pieces, network by network."""
    families = in_figures(records.settings["scale"])
    return [(family, piece) for family in families for piece in records.find(network=family.key)]


def table(records: Records) -> Table:
    """One line per image and network."""
    rows: list[tuple[Cell, ...]] = []
    for family, piece in of_families(records):
        for form in family.forms:
            values = piece.values["networks"][form]
            high, low = (values[f"to_ig_{contrast:g}"] for contrast in CONTRASTS)
            change = (values["change_fast"], values["change_ig"])
            rows.append((shown_class(piece), family.name(form), *(f"{value:.1e}" for value in (high, low, *change))))
    header = (
        "image", "network", "to IG, α = 1", f"to IG, α = {CONTRASTS[1]:g}", "change with contrast", "change of IG",
    )  # fmt: skip
    return Table(header, tuple(rows), NOTE)


NOTE = (
    "To IG: Σ|A − IG(128)| / Σ|IG(128)|, with A Input×Gradient on the regular network and X-Gradient on X-DNNs. "
    f"Change: 1 − cosine between the attributions at full contrast and at α = {CONTRASTS[1]:g}. The paper: on an "
    "X-DNN both are identical up to the error of the steps, on a regular network both differ."
)


def figure(records: Records, photos: dict[int, Any] | None = None) -> Any:
    """Rows are images at two contrasts, columns networks and methods."""
    from safetensors.torch import load_file

    pieces = of_families(records)
    kept = [load_file(records.path.parent / piece.values["maps"]) for _, piece in pieces]
    pictures = [
        tensors.get("image", (photos or {}).get(piece.key["image"]))
        for (_, piece), tensors in zip(pieces, kept, strict=True)
    ]
    with_image = [("image", "")] * any(picture is not None for picture in pictures)
    across = len(with_image) + max(len(columns(family)) for family, _ in pieces)
    drawn = canvas.new_figure(1.25 * across + 0.5, 2 * 1.25 * len(kept) + 0.75)
    axes = drawn.subplots(2 * len(kept), across, squeeze=False)
    for place, ((family, piece), tensors, picture) in enumerate(zip(pieces, kept, pictures, strict=True)):
        if place == 0 or pieces[place - 1][0] != family:
            for each, (form, name) in zip(axes[2 * place], with_image + columns(family), strict=True):
                canvas.title_axes(each, f"{form}\n{name}")
        for half, contrast in enumerate(CONTRASTS):
            line = list(axes[2 * place + half])
            for each in line:
                canvas.picture_axes(each)
            label = f"{family.label}\n{shown_class(piece)}\nα = {contrast:g}"
            canvas.write_text(line[0].set_ylabel(label, fontsize=canvas.SMALL))
            if picture is not None:
                seen = contrast * family.preprocess.normalise(to_pixels(picture))
                line[0].imshow(to_image(family.preprocess.picture(seen)))
            for each, values in zip(line[-len(columns(family)) :], tensors["maps"][half], strict=True):
                each.imshow(values.numpy(), cmap=matplotlib_map(), vmin=-BYTE, vmax=BYTE, interpolation="nearest")
    averaged = "averaged over 2 × 2 pixels" if (pieces[0][0].preprocess.crop or 0) > LARGEST else ""
    note = "each map has its own colours: blue speaks against the class, orange for it"
    canvas.note_figure(drawn, [note, "sum over channels", averaged])
    return drawn


def shown_class(piece: RecordedPiece) -> str:
    """ImageNet's names are words with underscores."""
    return str(piece.values["class"]).replace("_", " ")


def to_pixels(picture: Tensor) -> Tensor:
    """RGB in [0, 1]."""
    return picture.float() / 255 if picture.dtype == torch.uint8 else picture


def private_figure(records: Records, setting: Setting) -> Any:
    """With the photos, where they are at hand."""
    if setting.scale == "quick":
        return None
    family = in_figures(setting.scale)[0]
    try:
        data = image_networks.images(family, setting)
        chosen = {piece.key["image"] for piece in records.pieces}
        return figure(records, {index: family.preprocess.picture(data[index][0]) for index in chosen})
    except DataMissingError:
        return None


def item(panel: Panel, title: str) -> Item:
    """The panel as an item."""
    return Item(panel.name, title, partial(plan, panel), table, figure, private_figure)


#: The paper's photo shows a reflex camera (class 759); the photos of real data have a Polaroid camera (732).
FIG2_RIGHT = item(Panel("fig2-right", 1, (759, 732)), "Figure 2, right: attributions at low contrast")
FIG4 = item(Panel("fig4", 4), "Figure 4: more attributions at low contrast")
