"""Table 2, left, by the paper's own recipes (appendix B.1): SGD in steps for AlexNet, cosine and mixup for Fixup.

The presets of `Recipe`, run by `fit`. What differs from the paper: batches of 64 instead of 256, so that few epochs
have enough steps; steps of the learning rate after the same part of the epochs; images are mirrored, not cropped.
Fixup's shifts and scales are also taken away group by group, to see which of them a network misses. AlexNet with all
of its channels is left out: by this recipe the regular one was still at chance (5.8 % of 20 classes) after 8 epochs on
Tiny ImageNet, 17 minutes of a core, and a pair at chance compares nothing.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import default_collate

from axiograd.experiments import table2_training
from axiograd.experiments.item import Cell, Item, Plan, Setting, Table, Work
from axiograd.experiments.records import Records
from axiograd.experiments.table2 import HEADER, KINDS, NOTE, PAPERS, rows_of_pairs
from axiograd.experiments.table2_training import NETWORKS, Pair
from axiograd.training import Recipe, fit

BATCH, COMPARED = 64, 100
#: Of 100 epochs, after which the paper's AlexNet is trained at a tenth of its learning rate.
STEP = 0.3
#: What is left of the shifts b and scales of a regular Fixup-ResNet (names as in its blocks), in the forms between it
#: and X, which has none.
LEFT: dict[str, tuple[str, ...]] = {
    "scales only": ("scale",),
    "shifts only": ("bias1", "bias2", "bias1a", "bias1b", "bias2a", "bias2b", "bias"),
    "shifts before convolutions only": ("bias1a", "bias2a"),
    "shifts before ReLUs only": ("bias1", "bias1b", "bias2b"),
    "classifier's bias only": ("bias2", "bias"),
}
ABLATED = "fixup_resnet20"


@dataclass(frozen=True)
class Training:
    """A pair of networks on some images, for so many epochs."""

    network: str
    data: str
    epochs: int

    @property
    def pair(self) -> Pair:
        """The two networks."""
        return NETWORKS[self.network]

    @property
    def recipe(self) -> Recipe:
        """The paper's, for fewer epochs."""
        preset = "fixup_resnet50" if self.network.startswith("fixup") else "alexnet"
        steps = max(1, round(STEP * self.epochs))
        return Recipe.preset(preset, epochs=self.epochs, step_epochs=steps, batch_size=BATCH)


TRAININGS: dict[str, tuple[Training, ...]] = {
    "quick": (Training("alexnet", "shapes", 2), Training("fixup_resnet20", "shapes", 2)),
    "real": (
        Training("fixup_resnet20", "tiny-imagenet", 40),
        Training("fixup_resnet20", "fashion-mnist, all", 8),
        Training("alexnet", "fashion-mnist, all", 8),
    ),
}


def plan(setting: Setting) -> Plan:
    """One seed: the paper has one, too."""
    trainings = TRAININGS[setting.scale]
    data = {t.data: table2_training.load(t.data).train for t in trainings}
    settings = {
        "scale": setting.scale,
        "training_images": {name: len(images) for name, images in data.items()},
        "batch": BATCH,
        "trained_with": {f"{t.network}, {t.data}": str(t.recipe) for t in trainings},
        "ig_steps": table2_training.IG_STEPS,
        "compared_images": COMPARED,
        "seed": setting.seed,
    }
    return Plan("; ".join(images.name for images in data.values()), settings, (partial(_works, setting),))


def _works(setting: Setting, _: Records) -> Sequence[Work]:
    trainings = TRAININGS[setting.scale]
    ablated = next((t for t in trainings if t.network == ABLATED), None)
    forms = [("recipe", t, kind, kind == "X") for t in trainings for kind in KINDS.values()]
    forms += [("ablation", ablated, form, form == "scales only") for form in LEFT if ablated]
    return [
        Work(
            {"part": part, "data": t.data, "network": t.network, "kind": form, "seed": setting.seed},
            partial(train, t, form, homogeneous=homogeneous, seed=setting.seed),
        )
        for part, t, form, homogeneous in forms
    ]


def train(training: Training, form: str, *, homogeneous: bool, seed: int) -> dict[str, Any]:
    """Train one network by the recipe, and judge it."""
    task = table2_training.load(training.data)
    torch.manual_seed(seed)
    model = table2_training.build(training.pair, task, homogeneous=form == "X")
    if form in LEFT:
        keep_only(model, LEFT[form])
    start = time.process_time()
    result = fit(
        model,
        (task.train.inputs, task.train.targets),
        loss=F.cross_entropy,
        recipe=training.recipe,
        collate=_mirrored if task.flips else None,
        seed=seed,
        accelerator="cpu",
        progress=False,
    )
    seconds = (time.process_time() - start) / training.epochs
    judged = table2_training.judge(model, task, homogeneous=homogeneous, n_compared=COMPARED)
    return judged | {"seconds_per_epoch": seconds, "loss": [row["total"] for row in result.history]}


def keep_only(model: nn.Module, left: Collection[str]) -> None:
    """Take away shifts and scales but those of these names; a Fixup-ResNet goes on without them.

    >>> model = table2_training.get_model("fixup_resnet20", width=0.25)
    >>> keep_only(model, ["scale"])
    >>> sorted({name.rpartition(".")[2] for name, _ in model.named_parameters()})
    ['scale', 'weight']
    """
    for module in model.modules():
        for name, _ in list(module.named_parameters(recurse=False)):
            if name != "weight" and name not in left:
                module.register_parameter(name, None)


def _mirrored(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    return table2_training.flip(*default_collate(samples))


def table(records: Records) -> Table:
    """A line per network and form, with the accuracy that it has less than the regular one."""
    pieces = records.find(part="recipe")
    ends = [
        f"{NETWORKS[t.network].label} on {t.data}: "
        + ", ".join(f"{piece.key['kind']} {piece.values['loss'][-1]:.2f}" for piece in trained)
        for t in TRAININGS[records.settings["scale"]]
        if (trained := records.find(network=t.network, data=t.data))
    ]
    learned = f"Training loss of the last epoch, mixup included: {'; '.join(ends)}."
    rows = (*rows_of_pairs(pieces, NETWORKS), *_between(records))
    return Table(HEADER, rows, f"{SHORTER} {NOTE} {PAPERS} {learned}")


def _between(records: Records) -> Iterator[tuple[Cell, ...]]:
    """The forms between regular and X."""
    for piece in records.find(part="ablation"):
        key, values = piece.key, piece.values
        regular = records.get(**{**key, "part": "recipe", "kind": "regular"})
        lost = f"{regular['top1'] - values['top1']:.1f}" if regular else None
        found = [f"{values[name]:.1f}" for name in ("top1", "top5")], f"{values['difference']:.1f}"
        yield key["data"], NETWORKS[key["network"]].label, key["kind"], *found[0], lost, found[1], None, None


SHORTER = (
    "The paper's optimisers, schedules, weight decay and mixup, but for fewer epochs than its 100, in batches of 64, "
    "not of 256, on mirrored images and not on crops, with smaller networks, and without a VGG. Forms with a part of "
    "Fixup's shifts or scales stand between regular, which has all, and X, which has none."
)
ITEM = Item("table2-recipes", "Table 2 by the paper's own recipes", plan, table, scales=("quick", "real"))
