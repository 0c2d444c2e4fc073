"""Is a shortcut found by somebody who has not been told of it: clusters of attribution on Fashion-MNIST with patches.

A part of the training images has a patch that gives the class away: a white one on images of a single class, as a
watermark, or the grey ones of Decoy Fashion-MNIST on images of all. The studio looks at some of the images, clusters
their maps by the place where they are heavy, and ranks the clusters. At which rank is the first cluster on the patch,
and how many images of the wall are seen up to the first one with its patch in the window? The same clustering and the
same ranking are given three kinds of maps: X-Gradient of the X-DNN, Input × Gradient of a regular network, and pixels.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from axiograd.attribution import InputXGradient, XGradient
from axiograd.datasets import TensorData, add_decoy
from axiograd.datasets.pictures import Pictures
from axiograd.experiments.confounded import Confounded
from axiograd.experiments.decoy_training import METHODS, fitted
from axiograd.experiments.item import Cell, Item, Plan, Setting, Table, Work
from axiograd.experiments.loop import accuracy
from axiograd.experiments.records import Records, mean_and_std
from axiograd.experiments.studio_scenes import images, quietly
from axiograd.studio.clusters import Cluster, find_clusters, in_turns
from axiograd.studio.split import sample
from axiograd.studio.survey import Survey, cells, look

#: Whose maps are clustered: the label, and whether the network is an X-DNN.
MAPS = {
    "x-gradient": ("X-Gradient, X-DNN", True),
    "pixels": ("pixels, X-DNN", True),
    "input-x-gradient": ("Input × Gradient, regular network", False),
}


@dataclass(frozen=True)
class FindingSize:
    """How many images there are, how many are looked at, and which shares of them have the patch."""

    n: int = 6000
    epochs: int = 6
    looked_at: int = 2000
    shares: tuple[float, ...] = (0.01, 0.05, 0.2, 1.0)
    seeds: int = 5
    #: Test images on which reliance is measured.
    tested: int = 2000


SIZES = {"real": FindingSize(), "quick": FindingSize(n=1000, epochs=4, looked_at=500, shares=(0.2, 1.0), seeds=1)}


@dataclass(frozen=True)
class Contaminated:
    """Training images of which some have a patch, and test images on which it says what is right, and what is wrong."""

    train: TensorData
    right: TensorData
    misled: TensorData


def decoyed(data: Confounded, n: int, share: float, seed: int) -> Contaminated:
    """A grey patch in a corner tells the class, on a share of the first n images, drawn at random."""
    dirty, clean = data.train.select(slice(n)), data.clean_train.select(slice(n))
    chosen = torch.randperm(n, generator=torch.Generator().manual_seed(seed)) < round(share * n)
    train = _where(chosen, dirty, clean)
    return Contaminated(train, add_decoy(data.clean_test, informative=True), data.test)


def watermarked(data: Confounded, n: int, share: float, seed: int) -> Contaminated:
    """A white patch in the lower left corner, on a share of the images of one class, and on no other's."""
    label, clean = seed % data.classes, data.clean_train.select(slice(n))
    own = (clean.targets == label).nonzero().squeeze(1)
    drawn = own[torch.randperm(len(own), generator=torch.Generator().manual_seed(seed))[: round(share * len(own))]]
    chosen = torch.zeros(n, dtype=torch.bool)
    chosen[drawn] = True
    others = data.clean_test.select(data.clean_test.targets != label)
    return Contaminated(_where(chosen, _stamped(clean), clean), others, _stamped(others))


def _where(chosen: Tensor, dirty: TensorData, clean: TensorData) -> TensorData:
    where = chosen[:, None, None, None]
    shortcuts = dirty.per_sample()["shortcuts"] & where
    return replace(dirty, inputs=torch.where(where, dirty.inputs, clean.inputs), shortcuts=shortcuts)


def _stamped(data: TensorData, size: int = 4) -> TensorData:
    """All images with the white patch."""
    inputs, shortcuts = data.inputs.clone(), torch.zeros_like(data.inputs, dtype=torch.bool)
    inputs[:, :, -size:, :size], shortcuts[:, :, -size:, :size] = 1.0, True
    return replace(data, inputs=inputs, shortcuts=shortcuts)


#: What the patch is: of one class, or of all.
SHORTCUTS = {"watermark": ("white, on one class", watermarked), "decoy": ("grey, on all classes", decoyed)}


def on_the_patch(cluster: Cluster, shortcuts: Tensor) -> list[bool]:
    """For each image of a cluster: is at least half of its patch inside the cluster's window?

    >>> shortcuts = torch.zeros(2, 1, 32, 32, dtype=torch.bool)
    >>> shortcuts[0, :, :4, :4] = True
    >>> corner = Cluster((0, 1), (0.0, 0.0, 0.125, 0.125), 0.3, 0.5, 1.0, 0.5, 0.5, 1.0, {}, "", 0)
    >>> on_the_patch(corner, shortcuts)
    [True, False]
    """
    height, width = shortcuts.shape[-2:]
    left, top, right, bottom = cluster.box
    y, x = torch.arange(height) + 0.5, torch.arange(width) + 0.5
    down, across = (y > top * height) & (y < bottom * height), (x > left * width) & (x < right * width)
    patches = shortcuts[list(cluster.members), 0]
    sizes = patches.sum((1, 2))
    return ((sizes > 0) & (2 * (patches & down[:, None] & across[None]).sum((1, 2)) >= sizes)).tolist()


def effort(found: Sequence[Cluster], shortcuts: Tensor) -> dict[str, int | None]:
    """The rank of the first cluster most of whose images have their patch in its window, and how many images of the
    wall, one of each suspicious cluster in turn, are seen up to the first such image; None where there is none."""
    hits = [on_the_patch(cluster, shortcuts) for cluster in found]
    rank = next((place for place, one in enumerate(hits, 1) if 2 * sum(one) > len(one)), None)
    shown = {
        row
        for cluster, one in zip(found, hits, strict=True)
        for row, hit in zip(cluster.members, one, strict=True)
        if hit
    }
    order = in_turns([(one.score, one.members) for one in found])
    seen = next((place for place, row in enumerate(order, 1) if row in shown), None)
    return {"rank": rank, "seen": seen, "clusters": len(found), "wall": len(order)}


@lru_cache(1)
def learnt(
    name: str, size: FindingSize, shortcut: str, share: float, seed: int, *, homogeneous: bool
) -> tuple[nn.Module, TensorData, dict[str, float]]:
    """A network trained with some patches, its images, and its accuracies in per cent."""
    found = SHORTCUTS[shortcut][1](images(name), size.n, share, seed)
    method = METHODS["none-x" if homogeneous else "none"]
    model = fitted(method, 0.0, found.train, epochs=size.epochs, seed=seed)[0].eval()
    tests = {"right": found.right, "misled": found.misled}
    return model, found.train, {k: accuracy(model, test.select(slice(size.tested))) for k, test in tests.items()}


def searched(name: str, size: FindingSize, shortcut: str, share: float, maps: str, seed: int) -> dict[str, Any]:
    """Train with some patches, look, and see where they stand."""
    model, train, accuracies = learnt(name, size, shortcut, share, seed, homogeneous=MAPS[maps][1])
    pictures = Pictures.of_tensors(TensorData(train.inputs, train.targets, train.name))
    rows = sample(range(len(pictures)), size.looked_at, seed)
    survey = surveyed(model, pictures, rows, maps)
    found = find_clusters(model, pictures, survey, quietly, seed=seed)
    shortcuts = train.per_sample()["shortcuts"]
    return {
        **accuracies,
        "patches": int(shortcuts[rows].any((1, 2, 3)).sum()),
        **effort(found, shortcuts),
    }


def surveyed(model: nn.Module, pictures: Pictures, rows: Sequence[int], maps: str) -> Survey:
    """What is seen of the images, with the maps that are asked for."""
    method = XGradient(model, degree=1.0) if MAPS[maps][1] else InputXGradient(model)
    survey = look(model, method, pictures, rows, quietly)
    if maps != "pixels":
        return survey
    return replace(survey, maps=cells(pictures.batch(rows)).numpy())


def plan(setting: Setting) -> Plan:
    """Every share with every kind of maps, seed by seed."""
    name, size = ("shapes", SIZES["quick"]) if setting.scale == "quick" else ("fashion-mnist", SIZES["real"])
    first = setting.seed * 1000

    work = [
        Work(
            {"shortcut": shortcut, "share": share, "maps": maps, "seed": seed},
            partial(searched, name, size, shortcut, share, maps, seed),
        )
        for seed in range(first, first + size.seeds)
        for shortcut, share, maps in product(SHORTCUTS, size.shares, MAPS)
    ]
    settings = {"n_train": size.n, "epochs": size.epochs, "looked_at": size.looked_at}
    return Plan.of(images(name).clean_train.name, settings, work)


def table(records: Records) -> Table:
    """A line for each kind of patch, each share and each kind of maps."""
    looked_at = records.settings["looked_at"]
    rows: list[tuple[Cell, ...]] = []
    for shortcut, share, maps in product(SHORTCUTS, sorted({piece.key["share"] for piece in records.pieces}), MAPS):
        values = [piece.values for piece in records.find(shortcut=shortcut, share=share, maps=maps)]
        if values:
            rows.append(
                (
                    SHORTCUTS[shortcut][0],
                    f"{100 * share:g} %",
                    MAPS[maps][0],
                    mean_and_std([one["right"] - one["misled"] for one in values]),
                    _middle([one["rank"] for one in values]),
                    f"{statistics.fmean(one['clusters'] for one in values):.0f}",
                    _middle([one["seen"] for one in values]),
                    f"{statistics.fmean((looked_at + 1) / (one['patches'] + 1) for one in values):.0f}",
                    len(values),
                )
            )
    header = (
        "patch", "share with it", "maps", "reliance", "rank", "of clusters", "images seen", "at random", "seeds"
    )  # fmt: skip
    return Table(header, tuple(rows), _NOTE)


def _middle(values: Sequence[int | None]) -> str:
    """Median and range of what was found, and in how many of the seeds it was, where not in all.

    >>> _middle([1, 3, 2]), _middle([4, None, 4]), _middle([None])
    ('2 (1–3)', '4, found in 2 of 3', 'not found')
    """
    found = sorted(value for value in values if value is not None)
    if not found:
        return "not found"
    words = f"{statistics.median_low(found)}" + (f" ({found[0]}–{found[-1]})" if found[0] != found[-1] else "")
    return words if len(found) == len(values) else f"{words}, found in {len(found)} of {len(values)}"


_NOTE = (
    "Share with it: of the images of one class, or of all. Reliance: accuracy on at least 2,000 test images without "
    "the patch (white), or with that of their class (grey), less accuracy with the patch of another class, in points; "
    "near zero the network has not learnt the shortcut, and there is nothing to find. Rank: of the first cluster most "
    "of whose images have at least half of their patch in its window; median of the seeds, and range. Images seen: "
    "going through the wall, one image of each suspicious cluster in turn, up to the first with its patch in the "
    "window. At random: how many are seen, on average, up to the first with a patch, by somebody who recognises it "
    "without a heat map. All rows have the studio's clustering and its ranking, by what predictions lose without the "
    "window; they differ in the maps and in the network. Windows and ranking were chosen on the first two seeds."
)

ITEM = Item("studio-finding", "Studio: finding a shortcut without being told", plan, table, scales=("quick", "real"))
