"""How much painting mends a network: scripted strokes on Decoy Fashion-MNIST, a few images painted of many.

Nobody is asked. A script goes through the wall of the studio, the suspicious images first, paints the patch of each,
and trains one round, as a person would: with the strokes as they are, or spread to the same place in all images. Some
strokes may be wrong: as large, at a random place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axiograd.attribution import XGradient
from axiograd.datasets import TensorData
from axiograd.datasets.marked import Pictures
from axiograd.experiments.confounded import Confounded, load
from axiograd.experiments.decoy_training import network
from axiograd.experiments.item import Cell, Item, Plan, Setting, Table, Work
from axiograd.experiments.loop import accuracy, train_epochs
from axiograd.experiments.records import Records, mean_and_std
from axiograd.studio import mending
from axiograd.studio.clusters import find_clusters, in_turns
from axiograd.studio.judging import judge
from axiograd.studio.marks import Marks, as_dicts
from axiograd.studio.split import sample
from axiograd.studio.survey import look


@dataclass(frozen=True)
class Size:
    """How many images, how long, and which questions."""

    n: int = 10_000
    epochs: int = 4
    passes: int = 8
    batch: int = 128
    lr: float = 1e-3
    painted: tuple[int, ...] = (1, 5, 10, 20)
    seeds: int = 3


SIZES = {"real": Size(), "quick": Size(n=1000, epochs=3, passes=2, painted=(1, 5), seeds=1)}
WRONG = (0.1, 0.3)


@cache
def images(name: str) -> Confounded:
    """The set, once for all pieces."""
    return load(name, n_val=1000)


@cache
def beginning(name: str, size: Size, seed: int) -> tuple[nn.Module, Pictures, tuple[int, ...]]:
    """A network that has learnt the patch, its images, and those images in the order of the wall."""
    data = images(name)
    train = data.train.select(slice(size.n))
    torch.manual_seed(seed)
    model = network(data.channels, data.classes, homogeneous=True)

    def loss(x: Tensor, y: Tensor, *_: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y)

    train_epochs(train, loss, torch.optim.Adam(model.parameters(), 3e-3), epochs=size.epochs, batch=128, seed=seed)
    pictures = Pictures.of_tensors(TensorData(train.inputs, train.targets, train.name))
    model.eval()
    survey = look(model, XGradient(model), pictures, sample(range(len(pictures)), 2000, seed), _quietly)
    found = find_clusters(model, pictures, survey, _quietly, seed=seed)
    return model, pictures, tuple(in_turns([(one.score, one.members) for one in found]))


def _quietly(done: int, total: int) -> None:
    """Nobody watches."""


def paint(data: TensorData, rows: Sequence[int], wrong: float, *, spread: bool, n: int, seed: int) -> Marks:
    """The patches of some images as strokes, a share of which is at a random place instead."""
    height, width = data.inputs.shape[-2:]
    marks = Marks((height, width))
    random = np.random.default_rng(seed)
    mistaken = set(random.choice(len(rows), round(wrong * len(rows)), replace=False).tolist())
    for place, row in enumerate(rows):
        patch = data.per_sample()["shortcuts"][row, 0].nonzero()
        (top, left), (bottom, right) = patch.amin(0).tolist(), (patch.amax(0) + 1).tolist()
        if place in mistaken:
            top, left = int(random.integers(0, height - 4)), int(random.integers(0, width - 4))
            bottom, right = top + 4, left + 4
        corners = [[left, top], [right, bottom]]
        marks.add({"do": "stroke", "image": row, "kind": "wrong", "tool": "rectangle", "points": corners})
        if spread:
            to = [[other, 0, 0] for other in range(n) if other != row]
            marks.add({"do": "spread", "how": "place", "strokes": as_dicts(marks.strokes(row)[-1:]), "to": to})
    return marks


def mended(name: str, size: Size, painted: int, spread: str, wrong: float, seed: int) -> dict[str, Any]:
    """One round with so many painted images; accuracies in per cent where the patch tells nothing."""
    start, pictures, order = beginning(name, size, seed)
    data = images(name)
    model = network(data.channels, data.classes, homogeneous=True)
    model.load_state_dict(start.state_dict())
    model.eval()
    test = data.test
    masks = tuple(range(size.n)) if spread == "all masks" else order[:painted]
    values: dict[str, Any] = {}
    if spread != "no strokes":
        marks = paint(data.train, masks, wrong, spread=spread == "same place", n=size.n, seed=seed)
        rows = tuple(range(size.n))
        plan = mending.Plan("right-reasons", 1.0, size=size.n, seed=seed)
        set_ = mending.data_set(pictures, rows, marks, plan)
        plan = replace(mending.sensible(model, set_, "right-reasons", 1.0, seed), lr=size.lr, batch=size.batch)
        mending.mend(model, set_, plan, lambda _: True, seconds=1e9, epochs=size.passes)
        values = {"weight": plan.weight}
    truth = Marks(pictures.read(0).shape[-2:])  # type: ignore[arg-type]  # height and width
    few = Pictures.of_tensors(TensorData(test.inputs[:500], test.targets[:500], test.name))
    for row in range(500):
        patch = test.per_sample()["shortcuts"][row, 0].nonzero()
        corners = [patch.amin(0).flip(0).tolist(), (patch.amax(0) + 1).flip(0).tolist()]
        truth.add({"do": "stroke", "image": row, "kind": "wrong", "tool": "rectangle", "points": corners})
    verdict = judge(model, XGradient(model), few, range(500), truth, _quietly)
    return values | {"test": accuracy(model, test), "share": 100 * (verdict.wrong_share or 0.0)}


def plan(setting: Setting) -> Plan:
    """Each number of painted images with and without spreading, wrong strokes, all masks, and none."""
    name, size = ("shapes", SIZES["quick"]) if setting.scale == "quick" else ("fashion-mnist", SIZES["real"])
    first = setting.seed * 1000
    most = max(size.painted)
    asked = [(0, "no strokes", 0.0)]
    asked += [(most, "same place", 0.0), (most, "no", 0.0)]
    asked += [(k, how, 0.0) for k in reversed(size.painted[:-1]) for how in ("same place", "no")]
    asked += [(most, "same place", wrong) for wrong in WRONG] + [(0, "all masks", 0.0)]

    def work(seed: int, painted: int, spread: str, wrong: float) -> Work:
        key = {"part": "strokes", "painted": painted, "spread": spread, "wrong": wrong, "seed": seed}
        return Work(key, partial(mended, name, size, painted, spread, wrong, seed))

    def strokes(records: Records) -> Sequence[Work]:  # noqa: ARG001
        return [work(seed, *one) for seed in range(first, first + size.seeds) for one in asked]

    settings = {"n_train": size.n, "epochs": size.epochs, "passes": size.passes, "batch": size.batch, "lr": size.lr}
    return Plan(images(name).name, settings, (strokes,))


def table(records: Records) -> Table:
    """A line for each number of painted images."""
    keys = sorted(
        {(p.key["painted"], p.key["spread"], p.key["wrong"]) for p in records.find(part="strokes")},
        key=lambda key: (("no strokes", "no", "same place", "all masks").index(key[1]), key[2], key[0]),
    )
    rows: list[tuple[Cell, ...]] = []
    for painted, spread, wrong in keys:
        found = records.find(part="strokes", painted=painted, spread=spread, wrong=wrong)
        count = {"no strokes": "none", "all masks": "all"}.get(spread, str(painted))
        rows.append(
            (
                count,
                spread if spread in {"no", "same place"} else None,
                f"{100 * wrong:.0f} %",
                mean_and_std([p.values["test"] for p in found]),
                mean_and_std([p.values["share"] for p in found]),
                len(found),
            )
        )
    header = ("images painted", "spread to", "wrong strokes", "accuracy", "attribution on the patch", "seeds")
    return Table(header, tuple(rows), _NOTE)


_NOTE = (
    "Accuracy in per cent on 10,000 test images whose patch tells nothing (quick form: 1,000); attribution on "
    "the patch in per cent of all, on 500 of them; mean ± standard deviation of the seeds. The network has learnt the "
    "patch before. Painted are the first images of the studio's wall, suspicious first; one round of training with "
    "Right reasons at the studio's own strength. A wrong stroke is as large as a patch, at a random place."
)

ITEM = Item("studio", "Studio: mending by painting a few images", plan, table, scales=("quick", "real"))
