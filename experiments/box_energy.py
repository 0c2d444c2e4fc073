"""Does `Energy` make a network look at the object? Tiny ImageNet, 20 classes, with its bounding boxes.

A small network, with biases (regular) and without (X), is trained with and without a penalty on positive attribution
outside the box of the training image. On the validation images, whose boxes nothing was trained on, are measured the
accuracy and the share of positive attribution of the true class inside the box, by the attribution that the prior saw
and by Integrated Gradients, which judge both kinds of network alike (on the X network the two are equal).
"""

from dataclasses import replace
from functools import cache
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axiograd import AttributionLoss, ExpectedGradients, InputXGradient, IntegratedGradients, XGradient
from axiograd.datasets import TensorData, shapes, tiny_imagenet
from axiograd.metrics import boxes_to_masks, energy_inside
from axiograd.priors import Energy
from experiments import lab, loops

WEIGHTS, EPOCHS, BATCH, SEEDS = (1.0, 4.0), 6, 64, 3
#: What the prior sees, the network, the method, and the outputs that it attributes.
ROWS: dict[str, tuple[str, str, Any, str]] = {
    "none": ("no prior", "regular", InputXGradient, ""),
    "none-x": ("no prior", "X", XGradient, ""),
    "input-x-gradient": ("Input × Gradient", "regular", InputXGradient, "target"),
    "eg1": ("Expected Gradients (1)", "regular", ExpectedGradients, "target"),
    "x-gradient": ("X-Gradient", "X", XGradient, "target"),
    "x-gradient-residual": ("X-Gradient, residual", "X", XGradient, "residual"),
    "x-gradient-random": ("X-Gradient, random combination", "X", XGradient, "random"),
}


@cache
def images(quick: bool) -> tuple[TensorData, TensorData]:
    """Training and validation images, normalised per channel, with masks of their boxes."""
    if quick:
        found = [replace(shapes(split, n, size=32), shortcuts=None) for split, n in (("train", 256), ("test", 64))]
    else:
        found = [tiny(split) for split in ("train", "val")]
    mean, std = found[0].inputs.mean((0, 2, 3), keepdim=True), found[0].inputs.std((0, 2, 3), keepdim=True)
    train, val = (replace(data, inputs=(data.inputs - mean) / std) for data in found)
    return train, val


def tiny(split: str) -> TensorData:
    """Tiny ImageNet, its boxes as masks of what is inside."""
    data = tiny_imagenet(split).load()
    return replace(data, masks=boxes_to_masks(data.boxes, *data.inputs.shape[-2:])[:, None], boxes=None)


def network(classes: int, size: int, *, homogeneous: bool) -> nn.Sequential:
    """Three convolutions and a linear layer on squares of two by two pixels; without biases it is an X-DNN."""
    bias = not homogeneous
    layers: list[nn.Module] = [nn.PixelUnshuffle(2)]
    for before, after in ((12, 24), (24, 48), (48, 96)):
        layers += [nn.Conv2d(before, after, 3, padding=1, bias=bias), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(96 * (size // 16) ** 2, classes, bias=bias))


def mirrored(x: Tensor, y: Tensor, inside: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Half of the images mirrored, their masks with them."""
    turned = (torch.rand(len(x)) < 0.5)[:, None, None, None]
    return torch.where(turned, x.flip(-1), x), y, torch.where(turned, inside.flip(-1), inside)


def energy_of_residual(attributions: Tensor, *, inside: Tensor) -> Tensor:
    """The sign is turned: the task's gradient points away from the true class."""
    return Energy()(-attributions, inside=inside)


@lab.remember
def trained(row: str, weight: float, epochs: int, seed: int, quick: bool) -> dict[str, float]:
    """Accuracy and shares in per cent of one network, and processor seconds per epoch."""
    (train, val), (_, kind, method, outputs) = images(quick), ROWS[row]
    torch.manual_seed(seed)
    model = network(len(train.names), train.inputs.shape[-1], homogeneous=kind == "X")
    given = {"references": train.inputs} if method is ExpectedGradients else {}
    prior = energy_of_residual if outputs == "residual" else Energy()
    objective = AttributionLoss(F.cross_entropy, prior, weight, method, outputs=outputs or "target", **given)

    def loss(x: Tensor, y: Tensor, inside: Tensor) -> Tensor:
        return objective(model, x, y, inside=inside).total if weight else F.cross_entropy(model(x), y)

    optimizer = torch.optim.Adam(model.parameters(), 3e-3, weight_decay=1e-4)
    seconds = loops.train(train, loss, optimizer, epochs=epochs, batch=BATCH, seed=seed, augment=mirrored)
    found = {"accuracy": loops.accuracy(model, val), "seconds": seconds}
    integrated = IntegratedGradients(model, 32, internal_batch_size=500)
    for name, seen in (("share", method(model, **given)), ("share_ig", integrated)):
        shares = [energy_inside(seen.attribute(x, y), inside) for x, y, inside in val.batches(200)]
        found[name] = 100 * float(torch.cat(shares).mean())
    return found


def run(*, quick: bool) -> lab.Result:
    """All rows, weights and seeds."""
    epochs, seeds, weights = (1, 1, WEIGHTS[:1]) if quick else (EPOCHS, SEEDS, WEIGHTS)
    jobs = [(row, weight) for row in ROWS for weight in (weights if ROWS[row][3] else (0.0,))]
    _, val = images(quick)
    found = [
        {"row": row, "weight": weight, **trained(row, weight, epochs, seed, quick)}
        for row, weight in jobs
        for seed in range(seeds)
    ]
    return summary(pd.DataFrame(found), 100 * float(val.masks.float().mean()), val.name)


def summary(runs: pd.DataFrame, covered: float, data: str) -> lab.Result:
    """A line for each network, prior and weight."""
    columns = {"accuracy": "accuracy %", "share": "share inside %", "share_ig": "share of IG inside %"}
    table = loops.compared(runs, ROWS, columns)
    found = table.set_index(["training", "network", "λ"])
    gains = []
    for label, kind in (("Input × Gradient", "regular"), ("X-Gradient", "X")):
        gain = found.loc[label, kind, "1"] - found.loc["no prior", kind, ""]
        points = gain["share of IG inside %"], gain["accuracy %"]
        gains.append(f"{label} {points[0]:+.1f} points inside and {points[1]:+.1f} of accuracy")
    verdict = f"At λ = 1 the prior moves attribution into the box, over no prior: {'; '.join(gains)}."
    title = "Attribution inside the box: Tiny ImageNet with Energy"
    return lab.Result(title, table, verdict, NOTE.format(covered=covered), data, "0 to 2", draw(table, covered))


def draw(table: pd.DataFrame, covered: float):
    """Accuracy over the share of attribution inside, a line per method from no prior to the largest weight."""
    figure, (axes,) = lab.figure(5.0, 3.6)
    shown = {"Input × Gradient": "regular", "Expected Gradients (1)": "lift", "X-Gradient": "strict X"}
    for label, colour in shown.items():
        kind = "X" if label == "X-Gradient" else "regular"
        line = table[table["training"].isin(["no prior", label]) & (table["network"] == kind)]
        style = {"color": lab.COLOURS[colour], "label": label}
        axes.plot(line["share of IG inside %"], line["accuracy %"], "o-", **style)
    axes.axvline(covered, color="black", linestyle=":", linewidth=1, label="spread evenly")
    axes.set_xlabel("Integrated Gradients inside the box, %", fontsize=8)
    axes.set_ylabel("accuracy, %", fontsize=8)
    axes.legend(fontsize=8, frameon=False)
    return figure


NOTE = """\
Share of the positive attribution of the true class inside the box of validation images, by the attribution that the
prior sees and by Integrated Gradients with 32 steps; attribution spread evenly would have {covered:.1f} % inside. Mean
± standard deviation of the seeds. Time is that of the processor per epoch relative to no prior on the same kind of
network; rows were trained on different days, so that times compare roughly. Input × Gradient is near enough to
Integrated Gradients here that exactness alone is no advantage for accuracy; on the X network the shares are equal."""
