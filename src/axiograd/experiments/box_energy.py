"""Does `Energy` make a network look at the object? Tiny ImageNet, 20 classes, with its bounding boxes.

    axiograd reproduce box-energy

A small network, with biases (regular) and without (X), is trained with and without a penalty on positive attribution
outside the box of the training image. On the validation images, whose boxes nothing was trained on, are measured the
accuracy and the share of positive attribution of the true class inside the box, by the attribution that the prior saw
and by Integrated Gradients, which judge both kinds of network alike (on the X network the two are equal).
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from axiograd.attribution import Attribution, IntegratedGradients
from axiograd.attribution.methods import find_method
from axiograd.datasets import TensorData, box_masks, shapes, tiny_imagenet
from axiograd.errors import StorageError
from axiograd.experiments.item import Item, Plan, Setting, Table, Work
from axiograd.experiments.loop import PriorOn, accuracy, batch_loss, train_epochs
from axiograd.experiments.records import Records, mean_and_std
from axiograd.metrics import energy_inside
from axiograd.priors import Energy

BATCH, LEARNING_RATE, WEIGHT_DECAY = 64, 3e-3, 1e-4
WEIGHTS = (1.0, 4.0)
EPOCHS, SEEDS = 6, 3
IG_STEPS = 32


ROWS = {
    "none": PriorOn("no prior"),
    "none-x": PriorOn("no prior", homogeneous=True),
    "input-x-gradient": PriorOn("Input × Gradient", "input-x-gradient"),
    "eg1": PriorOn("Expected Gradients (1)", "expected-gradients"),
    "x-gradient": PriorOn("X-Gradient", "x-gradient", homogeneous=True),
    "x-gradient-residual": PriorOn("X-Gradient, residual", "x-gradient", homogeneous=True, outputs="residual"),
    "x-gradient-random": PriorOn("X-Gradient, random combination", "x-gradient", homogeneous=True, outputs="random"),
}


@dataclass(frozen=True)
class Boxed:
    """Images with masks of their boxes, for training and for judging."""

    train: TensorData
    val: TensorData

    @property
    def covered(self) -> float:
        """The mean share of a validation image that its box covers: what attribution spread evenly would have."""
        masks = self.val.masks
        return 100 * float(torch.zeros(()) if masks is None else masks.float().mean())


@functools.cache
def load(scale: str) -> Boxed:
    """Tiny ImageNet normalised per channel, or shapes whose shortcut is no box."""
    if scale == "quick":
        made = [shapes(split, n=n, size=32, seed=0) for split, n in (("train", 512), ("test", 256))]
        made = [replace(data, shortcuts=None) for data in made]
    else:
        made = [tiny(split) for split in ("train", "val")]
    mean, std = made[0].inputs.mean((0, 2, 3), keepdim=True), made[0].inputs.std((0, 2, 3), keepdim=True)
    return Boxed(*(replace(data, inputs=(data.inputs - mean) / std) for data in made))


def tiny(split: str) -> TensorData:
    """Tiny ImageNet, its boxes as masks of what is inside."""
    data = tiny_imagenet(split).load()
    if data.boxes is None:
        raise StorageError(f"{data.name} has no bounding boxes.")
    return replace(data, masks=box_masks(data.boxes, *data.inputs.shape[-2:]), boxes=None)


def network(classes: int, size: int, *, homogeneous: bool) -> nn.Sequential:
    """Three convolutions and a linear layer on squares of two by two pixels; without biases it is an X-DNN.

    >>> model = network(20, 64, homogeneous=True)
    >>> x = torch.rand(2, 3, 64, 64)
    >>> torch.allclose(model(3 * x), 3 * model(x), rtol=1e-4, atol=1e-5)
    True
    """
    bias = not homogeneous
    layers: list[nn.Module] = [nn.PixelUnshuffle(2)]
    for before, after in ((12, 24), (24, 48), (48, 96)):
        layers += [nn.Conv2d(before, after, 3, padding=1, bias=bias), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(96 * (size // 16) ** 2, classes, bias=bias))


def flip(x: Tensor, y: Tensor, inside: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Half of the images mirrored, their masks with them."""
    mirrored = (torch.rand(len(x)) < 0.5)[:, None, None, None]  # noqa: PLR2004
    return torch.where(mirrored, x.flip(-1), x), y, torch.where(mirrored, inside.flip(-1), inside)


def train(row: PriorOn, weight: float, data: Boxed, *, epochs: int, seed: int) -> dict[str, float]:
    """Train one network; accuracy and shares in per cent, processor seconds per epoch."""
    torch.manual_seed(seed)
    model = network(len(data.train.names), data.train.inputs.shape[-1], homogeneous=row.homogeneous)
    prior = for_the_truth if row.outputs == "residual" else Energy()
    loss = batch_loss(model, row.loss(prior, weight, data.train.inputs), "inside")
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    seconds = train_epochs(data.train, loss, optimizer, epochs=epochs, batch=BATCH, seed=seed, augment=flip)
    seen = find_method(row.attribution or ("x-gradient" if row.homogeneous else "input-x-gradient"))
    return {
        "accuracy": accuracy(model, data.val),
        "share": inside_share(seen.build(model, steps=1, references=data.train.inputs), data.val),
        "share_ig": inside_share(IntegratedGradients(model, IG_STEPS, internal_batch_size=500), data.val),
        "seconds_per_epoch": min(seconds),
    }


def for_the_truth(attributions: Tensor, *, inside: Tensor) -> Tensor:
    """`Energy` of the residual, whose sign is turned: the task's gradient points away from the true class."""
    return Energy()(-attributions, inside=inside)


def inside_share(method: Attribution, data: TensorData) -> float:
    """Per cent of the positive attribution of the true class that lies inside, mean over images."""
    found = [energy_inside(method.attribute(x, y), inside) for x, y, inside in data.batches(200)]
    return 100 * float(torch.cat(found).mean())


def plan(setting: Setting) -> Plan:
    """All rows, weights and seeds."""
    epochs, seeds, weights = (1, 1, WEIGHTS[:1]) if setting.scale == "quick" else (EPOCHS, SEEDS, WEIGHTS)
    data = load(setting.scale)

    work = [
        Work(
            {"row": name, "weight": weight, "seed": setting.seed + seed},
            functools.partial(train, row, weight, data, epochs=epochs, seed=setting.seed + seed),
            cost=2.5 if row.attribution else 1.0,
        )
        for seed in range(seeds)
        for name, row in ROWS.items()
        for weight in (weights if row.attribution else (0.0,))
    ]
    settings = {"epochs": epochs, "batch": BATCH, "learning_rate": LEARNING_RATE, "weight_decay": WEIGHT_DECAY}
    settings |= {"ig_steps": IG_STEPS, "covered": data.covered}
    return Plan.of(data.train.name, settings, work)


def table(records: Records) -> Table:
    """A line for each network, prior and weight."""
    found = {(name, p.key["weight"]): p for name in ROWS for p in records.find(row=name)}
    plain = {row.homogeneous: _seconds(records, row=name) for name, row in ROWS.items() if not row.attribution}
    rows = []
    for name, weight in found:
        row, values = ROWS[name], [piece.values for piece in records.find(row=name, weight=weight)]
        cells = [mean_and_std([v[what] for v in values]) for what in ("accuracy", "share", "share_ig")]
        time = _seconds(records, row=name, weight=weight) / plain[row.homogeneous]
        kind = "X" if row.homogeneous else "regular"
        rows.append((row.label, kind, weight or None, *cells, f"{time:.1f}", len(values)))
    header = ("prior on", "network", "λ", "accuracy %", "share inside %", "share of IG inside %", "time", "seeds")
    return Table(header, tuple(rows), f"{_note(records.settings)} {_verdict(records)}".strip())


def _note(settings: Mapping[str, Any]) -> str:
    return (
        "Share of the positive attribution of the true class inside the box of validation images, by the attribution "
        f"that the prior sees and by Integrated Gradients with {settings['ig_steps']} steps; attribution spread evenly "
        f"would have {settings['covered']:.1f} % inside. Mean ± standard deviation of the seeds. Time is that of the "
        "processor per epoch relative to no prior on the same kind of network; rows were trained on different days, "
        "so that times compare roughly."
    )


def _verdict(records: Records) -> str:
    """What each prior gains at its smallest weight, and how far the attribution that it sees is from IG."""

    def mean(name: str, weight: float, what: str) -> float:
        return statistics.fmean(piece.values[what] for piece in records.find(row=name, weight=weight))

    gains, errors = [], []
    for name, row in ROWS.items():
        plain = "none-x" if row.homogeneous else "none"
        weights = [piece.key["weight"] for piece in records.find(row=name)]
        if not (row.attribution and weights and records.find(row=plain)):
            continue
        share, accuracy = (mean(name, min(weights), what) - mean(plain, 0.0, what) for what in ("share_ig", "accuracy"))
        gains.append(f"{row.label} {share:+.1f} points inside and {accuracy:+.1f} of accuracy (λ = {min(weights):g})")
        error = max(abs(mean(name, weight, "share") - mean(name, weight, "share_ig")) for weight in weights)
        errors.append(f"{row.label} {error:.1f}")
    if not gains:
        return ""
    return (
        f"Over no prior: {'; '.join(gains)}. Largest difference between the share that the prior sees and that of "
        f"Integrated Gradients, in points: {', '.join(errors)}. Where an approximation is that near, exactness alone "
        "is no advantage for accuracy."
    )


def _seconds(records: Records, **key: Any) -> float:
    times = [piece.values["seconds_per_epoch"] for piece in records.find(**key)]
    return statistics.fmean(times)


def figure(records: Records) -> Any:
    """Accuracy over the share of attribution inside, a line per method from no prior to the largest weight."""
    import matplotlib.pyplot as plt

    drawn, axes = plt.subplots(figsize=(5, 3.6), layout="constrained")
    styles = {
        "input-x-gradient": ("none", "#0072b2", "s"),
        "eg1": ("none", "#e69f00", "^"),
        "x-gradient": ("none-x", "#d55e00", "o"),
    }
    for name, (start, colour, marker) in styles.items():
        pieces = [*records.find(row=start), *records.find(row=name)]
        points = [
            [sum(v) / len(v) for v in zip(*((p.values["share_ig"], p.values["accuracy"]) for p in group), strict=True)]
            for weight in sorted({p.key["weight"] for p in pieces})
            if (group := [p for p in pieces if p.key["weight"] == weight])
        ]
        if points:
            axes.plot(*zip(*points, strict=True), marker=marker, color=colour, label=ROWS[name].label)
    axes.axvline(records.settings["covered"], color="grey", linestyle=":", linewidth=1, label="spread evenly")
    axes.set(xlabel="Integrated Gradients inside the box, %", ylabel="accuracy, %")
    axes.legend(frameon=False)
    return drawn


ITEM = Item(
    "box-energy",
    "Attribution inside the box: Tiny ImageNet with Energy",
    plan,
    table,
    figure,
    scales=("quick", "real"),
)
