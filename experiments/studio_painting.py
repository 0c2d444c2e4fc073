"""How much painting helps a network: scripted strokes in the studio, a few images painted of many.

Nobody is asked. A script goes through the wall of the studio, the suspicious images first, paints the shortcut of each,
and trains one round, as a person would: with the strokes as they are, or spread to the same place in all images. Some
strokes may be wrong: as large, at a random place.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import nn

from axiograd import XGradient
from axiograd.datasets import TensorData
from axiograd.datasets.pictures import Pictures
from axiograd.studio.clusters import find_clusters, in_turns
from axiograd.studio.fixing import choose_plan, fix, marked_images
from axiograd.studio.marks import Marks, as_dicts
from axiograd.studio.survey import look, sample
from experiments import lab, loops
from experiments.studio_scenes import BOXES, scene_of

JUDGED = 500


class Size(NamedTuple):
    """How many images are there and painted, how they are trained, and how often."""

    n: int = 10_000
    epochs: int = 12
    passes: int = 6
    batch: int = 128
    rate: float = 1e-3
    painted: tuple[int, ...] = (1, 5, 10, 20)
    spreads: tuple[str, ...] = ("no", "same place")
    wrong: tuple[float, ...] = (0.1, 0.3)
    seeds: int = 5


SIZES = {
    "Decoy Fashion-MNIST": Size(),
    "the demonstration's shapes": Size(n=2400, epochs=5, batch=50, rate=2e-3),
    "Colour MNIST": Size(epochs=6, painted=(5, 20), wrong=(), seeds=3),
    BOXES: Size(n=4000, epochs=8, passes=3, painted=(20, 500), spreads=("no",), wrong=(), seeds=3),
}
QUICK = {"grey shapes": Size(n=600, epochs=2, passes=1, painted=(1, 5), wrong=(0.3,), seeds=1)}


@cache
def beginning(name: str, size: Size, seed: int) -> tuple[nn.Module, Pictures, tuple[int, ...]]:
    """A network that has learnt the shortcut, its images, and those images in the order of the wall."""
    scene = scene_of(name, size.n, size.epochs)
    model, pictures = scene.learnt(seed), scene.pictures(scene.train)
    survey = look(XGradient(model, degree=1.0), pictures, sample(range(len(pictures)), 2000, seed))
    found = find_clusters(model, pictures, survey, seed=seed)
    return model, pictures, tuple(in_turns([(one.score, one.members) for one in found]))


def corners(data: TensorData, row: int) -> list[list[int]]:
    """Left and top, right and bottom of an image's shortcut."""
    patch = data.shortcuts[row, 0].nonzero()
    return [patch.amin(0).flip(0).tolist(), (patch.amax(0) + 1).flip(0).tolist()]


def paint(data: TensorData, rows: Sequence[int], wrong: float, *, spread: bool, outside: bool, seed: int) -> Marks:
    """The shortcuts of some images as strokes, or all but their boxes; a share of them at a random place instead."""
    height, width = data.inputs.shape[-2:]
    marks, random = Marks((height, width)), np.random.default_rng(seed)
    mistaken = set(random.choice(len(rows), round(wrong * len(rows)), replace=False).tolist())
    for place, row in enumerate(rows):
        box = corners(data, row)
        if place in mistaken:
            size = [high - low for low, high in zip(*box, strict=True)]
            top, left = (int(random.integers(0, side - own)) for side, own in ((height, size[1]), (width, size[0])))
            box = [[left, top], [left + size[0], top + size[1]]]
        strokes = [("wrong", [[0, 0], [width, height]]), ("erase", box)] if outside else [("wrong", box)]
        for kind, points in strokes:
            marks.add({"do": "stroke", "image": row, "kind": kind, "tool": "rectangle", "points": points})
        if spread:
            to = [[other, 0, 0] for other in range(len(data)) if other != row]
            marks.add({"do": "spread", "image": row, "strokes": as_dicts(marks.strokes(row)[-1:]), "to": to})
    return marks


@lab.remember
def fixed(name: str, size: Size, painted: int, spread: str, wrong: float, seed: int) -> dict[str, float]:
    """One round with so many painted images; accuracy and attribution on the shortcut, in per cent."""
    scene = scene_of(name, size.n, size.epochs)
    start, pictures, order = beginning(name, size, seed)
    model, every = copy.deepcopy(start), tuple(range(size.n))
    if painted:
        how = {"spread": spread == "same place", "outside": name == BOXES, "seed": seed}
        marks = paint(scene.train, every if painted == size.n else order[:painted], wrong, **how)
        data = marked_images(pictures, every, marks, "right-reasons", size=size.n, seed=seed)
        plan = replace(choose_plan(model, data, "right-reasons", seed=seed), lr=size.rate, batch=size.batch)
        for _ in fix(model, data, plan, size.passes):
            pass
        model.eval()
    seen = replace(scene.test, inputs=scene.transform.normalise(scene.test.inputs))
    few, shares = seen.select(slice(JUDGED)), []
    for x, *_, shortcut in few.batches(100):
        mass = XGradient(model, degree=1.0).attribute(x, model(x).detach().argmax(1)).abs().sum(1, keepdim=True)
        counted = ~shortcut if name == BOXES else shortcut
        shares.append((mass * counted).flatten(1).sum(1) / mass.flatten(1).sum(1).clamp_min(1e-30))
    return {"accuracy": loops.accuracy(model, seen), "attribution on it": 100 * float(torch.cat(shares).mean())}


def run(*, quick: bool) -> lab.Result:
    """Each number of painted images with and without spreading, wrong strokes, all images, and none."""
    found = []
    for name, size in (QUICK if quick else SIZES).items():
        asked = [(0, "", 0.0), *((k, how, 0.0) for how in size.spreads for k in size.painted)]
        asked += [(max(size.painted), size.spreads[-1], wrong) for wrong in size.wrong] + [(size.n, "", 0.0)]
        found += [
            {"scene": name, "painted": k, "spread": how, "wrong": wrong, **fixed(name, size, k, how, wrong, seed)}
            for k, how, wrong in asked
            for seed in range(size.seeds)
        ]
    return summary(pd.DataFrame(found))


def summary(runs: pd.DataFrame) -> lab.Result:
    """A line for each scene and number of painted images."""
    most = runs.groupby("scene")["painted"].transform("max")
    count = runs["painted"].astype(str).mask(runs["painted"] == 0, "none").mask(runs["painted"] == most, "all")
    columns = {
        "images": runs["scene"],
        "painted": count,
        "spread to": runs["spread"],
        "wrong strokes": [f"{100 * share:.0f} %" for share in runs["wrong"]],
        "accuracy": runs["accuracy"],
        "attribution on it": runs["attribution on it"],
    }
    table = loops.over_seeds(pd.DataFrame(columns).to_dict("records"), by=list(columns)[:4])
    words = []
    for name, part in table[table["wrong strokes"] == "0 %"].groupby("images", sort=False):
        found = part.set_index(["painted", "spread to"])["accuracy"]
        few = part[(part["painted"].isin(["5", "20"]))].iloc[-1]
        after = f"{few['accuracy']:.1f} % ({few['painted']} painted; all of them {found['all', '']:.1f})"
        words.append(f"{name} {found['none', '']:.1f} → {after}")
    verdict = f"Accuracy where the shortcut does not help, before and after one round: {'; '.join(words)}."
    title = "Studio: fixing a shortcut by painting a few images"
    return lab.Result(title, table, verdict, NOTE, ", ".join(runs["scene"].unique()), "0 to 4")


NOTE = """\
Accuracy in per cent on test images whose shortcut does not help; attribution on it in per cent of all, on 500 of them;
mean ± standard deviation of the seeds. The network has learnt the shortcut before. Painted are the first images of the
studio's wall, suspicious first; one round of training with Right reasons at the studio's own strength. A wrong stroke
is as large, at a random place. Colour MNIST: the shortcut is the digit's colour, which has no place of its own; painted
is the digit's box, for want of anything better, and the test's digits have other colours. Tiny ImageNet: no shortcut is
known; a person paints all but the object's box, and the test images are the validation images."""
