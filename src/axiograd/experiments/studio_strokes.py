"""How much painting helps a network: scripted strokes on Decoy Fashion-MNIST, a few images painted of many.

Nobody is asked. A script goes through the wall of the studio, the suspicious images first, paints the patch of each,
and trains one round, as a person would: with the strokes as they are, or spread to the same place in all images. Some
strokes may be wrong: as large, at a random place.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from torch import nn

from axiograd.attribution import XGradient
from axiograd.datasets import TensorData
from axiograd.datasets.pictures import Pictures
from axiograd.experiments.item import Cell, Item, Plan, Setting, Table, Work
from axiograd.experiments.loop import accuracy
from axiograd.experiments.records import Records, mean_and_std
from axiograd.experiments.studio_scenes import Scene, boxed, coloured, decoyed, quietly, tagged
from axiograd.studio import mending
from axiograd.studio.clusters import find_clusters, in_turns
from axiograd.studio.judging import judge
from axiograd.studio.marks import Marks, as_dicts
from axiograd.studio.split import sample
from axiograd.studio.survey import look


@dataclass(frozen=True)
class PaintingSize:
    """Which images and how many, how long, and which questions."""

    scene: str
    n: int = 10_000
    epochs: int = 12
    passes: int = 6
    batch: int = 128
    lr: float = 1e-3
    painted: tuple[int, ...] = (1, 5, 10, 20)
    spreads: tuple[str, ...] = ("same place", "no")
    wrong: tuple[float, ...] = (0.1, 0.3)
    seeds: int = 5


SIZES = {
    "real": PaintingSize("fashion-mnist"),
    "quick": PaintingSize("shapes", n=1000, epochs=3, passes=2, painted=(1, 5), seeds=1),
    "demonstration": PaintingSize("demonstration", n=2400, epochs=5, passes=6, batch=50, lr=2e-3),
    "color": PaintingSize("color-mnist", epochs=6, painted=(5, 20), wrong=(), seeds=3),
    "boxes": PaintingSize(
        "tiny-imagenet", n=4000, epochs=8, passes=3, painted=(20, 500), spreads=("no",), wrong=(), seeds=3
    ),
    "quick-demonstration": PaintingSize(
        "demonstration", n=600, epochs=2, passes=1, batch=50, lr=2e-3, painted=(1, 5), seeds=1
    ),
}
SCENES = {"demonstration": tagged, "color-mnist": coloured, "tiny-imagenet": boxed}
#: Test images on which attribution is measured.
JUDGED = 500


@cache
def scene_of(size: PaintingSize) -> Scene:
    """The images, once for all pieces."""
    return SCENES.get(size.scene, partial(decoyed, size.scene))(size.n, size.epochs)


@cache
def beginning(size: PaintingSize, seed: int) -> tuple[nn.Module, Pictures, tuple[int, ...]]:
    """A network that has learnt the patch, its images, and those images in the order of the wall."""
    scene = scene_of(size)
    model, pictures = scene.learnt(seed), scene.pictures(scene.train)
    survey = look(model, XGradient(model, degree=1.0), pictures, sample(range(len(pictures)), 2000, seed), quietly)
    found = find_clusters(model, pictures, survey, quietly, seed=seed)
    return model, pictures, tuple(in_turns([(one.score, one.members) for one in found]))


def box(data: TensorData, row: int) -> tuple[int, int, int, int]:
    """Top, left, bottom, right of an image's patch."""
    patch = data.per_sample()["shortcuts"][row, 0].nonzero()
    (top, left), (bottom, right) = patch.amin(0).tolist(), (patch.amax(0) + 1).tolist()
    return top, left, bottom, right


def paint(
    data: TensorData, rows: Sequence[int], wrong: float, *, spread: bool, n: int, seed: int, outside: bool = False
) -> Marks:
    """The patches of some images as strokes, or all but their boxes; a share of them at a random place instead."""
    height, width = data.inputs.shape[-2:]
    marks = Marks((height, width))
    random = np.random.default_rng(seed)
    mistaken = set(random.choice(len(rows), round(wrong * len(rows)), replace=False).tolist())
    for place, row in enumerate(rows):
        top, left, bottom, right = box(data, row)
        if place in mistaken:
            down, across = int(random.integers(0, height - bottom + top)), int(random.integers(0, width - right + left))
            top, bottom, left, right = down, down + bottom - top, across, across + right - left
        rectangles = [("wrong", [[left, top], [right, bottom]])]
        if outside:
            rectangles = [("wrong", [[0, 0], [width, height]]), ("erase", rectangles[0][1])]
        for kind, corners in rectangles:
            marks.add({"do": "stroke", "image": row, "kind": kind, "tool": "rectangle", "points": corners})
        if spread:
            to = [[other, 0, 0] for other in range(n) if other != row]
            marks.add({"do": "spread", "how": "place", "strokes": as_dicts(marks.strokes(row)[-1:]), "to": to})
    return marks


def mended(size: PaintingSize, painted: int, spread: str, wrong: float, seed: int) -> dict[str, Any]:
    """One round with so many painted images; accuracies in per cent where the patch tells nothing."""
    scene = scene_of(size)
    start, pictures, order = beginning(size, seed)
    model = copy.deepcopy(start)
    masks = tuple(range(size.n)) if spread == "all masks" else order[:painted]
    values: dict[str, Any] = {}
    if spread != "no strokes":
        to_all = spread == "same place"
        marks = paint(scene.train, masks, wrong, spread=to_all, n=size.n, seed=seed, outside=scene.outside)
        rows = tuple(range(size.n))
        plan = mending.MendingPlan("right-reasons", 1.0, size=size.n, seed=seed)
        set_ = mending.data_set(pictures, rows, marks, plan)
        plan = replace(mending.sensible(model, set_, "right-reasons", 1.0, seed), lr=size.lr, batch=size.batch)
        mending.mend(model, set_, plan, lambda _: True, seconds=1e9, epochs=size.passes)
        values = {"weight": plan.weight}
    few = scene.test.select(slice(JUDGED))
    truth = paint(few, range(len(few)), 0.0, spread=False, n=len(few), seed=seed, outside=scene.outside)
    verdict = judge(model, XGradient(model, degree=1.0), scene.pictures(few), range(len(few)), truth, quietly)
    return values | {"test": accuracy(model, scene.normalised(scene.test)), "share": 100 * (verdict.wrong_share or 0.0)}


def plan(setting: Setting, kind: str = "real") -> Plan:
    """Each number of painted images with and without spreading, wrong strokes, all masks, and none."""
    # Without a download: the demonstration's shapes, or grey ones with patches.
    size = SIZES.get(f"quick-{kind}", SIZES["quick"]) if setting.scale == "quick" else SIZES[kind]
    first = setting.seed * 1000
    most = max(size.painted)
    asked = [(0, "no strokes", 0.0)]
    asked += [(k, how, 0.0) for k in reversed(size.painted) for how in size.spreads]
    asked += [(most, size.spreads[0], wrong) for wrong in size.wrong] + [(0, "all masks", 0.0)]

    work = [
        Work(
            {"part": "strokes", "painted": painted, "spread": spread, "wrong": wrong, "seed": seed},
            partial(mended, size, painted, spread, wrong, seed),
        )
        for painted, spread, wrong in asked
        for seed in range(first, first + size.seeds)
    ]
    settings = {"n_train": size.n, "epochs": size.epochs, "passes": size.passes, "batch": size.batch, "lr": size.lr}
    scene = scene_of(size)
    return Plan.of(scene.train.name, {**settings, "n_test": len(scene.test)}, work)


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
    "Accuracy in per cent on test images whose patch tells nothing; attribution on the patch in per cent of all, on "
    f"{JUDGED} of them; mean ± standard deviation of the seeds. The network has learnt the patch before. Painted are "
    "the first images of the studio's wall, suspicious first; one round of training with Right reasons at the studio's "
    "own strength. A wrong stroke is as large as a patch, at a random place."
)
_COLOR = (
    " Here the shortcut is the digit's colour, which has no place of its own: painted is the digit's box, "
    "for want of anything better, and the test's digits have other colours."
)
_BOXES = (
    " Here no shortcut is known: a person paints all but the object's box, which is what the patch means above, "
    "and the test images are the validation images."
)


def scene_item(name: str, title: str, kind: str, note: str = "") -> Item:
    """The same questions about another scene."""

    def noted(records: Records) -> Table:
        found = table(records)
        return replace(found, note=found.note + note)

    return Item(name, f"Studio: the same {title}", partial(plan, kind=kind), noted, scales=("quick", "real"))


ITEM = Item("studio", "Studio: fixing a shortcut by painting a few images", plan, table, scales=("quick", "real"))
DEMONSTRATION = scene_item("studio-shapes", "on the demonstration's shapes", "demonstration")
COLOR = scene_item("studio-color", "on Colour MNIST", "color", _COLOR)
BOXES = scene_item("studio-boxes", "on Tiny ImageNet with boxes", "boxes", _BOXES)
