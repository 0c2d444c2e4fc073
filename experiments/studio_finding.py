"""Is a shortcut found by somebody who has not been told of it: clusters of attribution on Fashion-MNIST with patches.

A part of the training images has a patch that gives the class away: a white one on images of a single class, as a
watermark, or the grey ones of Decoy Fashion-MNIST on images of all. The studio looks at some of the images, clusters
their maps by the place where they are heavy, and ranks the clusters. At which rank is the first cluster on the patch,
and how many images of the wall are seen up to the first one with its patch in the window? The same clustering and the
same ranking are given three kinds of maps: X-Gradient of the X-DNN, Input × Gradient of a regular network, and pixels.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from axiograd import InputXGradient, XGradient
from axiograd.datasets import TensorData, add_decoy
from axiograd.datasets.pictures import Pictures
from axiograd.studio.clusters import Cluster, find_clusters, in_turns
from axiograd.studio.survey import cells, look, sample
from experiments import confounded, lab, loops

WHITE, GREY = "white, on one class", "grey, on all classes"
X, PIXELS, REGULAR = "X-Gradient, X-DNN", "pixels, X-DNN", "Input × Gradient, regular network"
SHARES, SEEDS, N, EPOCHS, LOOKED_AT, TESTED = (0.01, 0.05, 0.2, 1.0), 5, 6000, 6, 2000, 2000


def contaminated(patch: str, share: float, n: int, seed: int, data: confounded.Confounded) -> list[TensorData]:
    """Training images of which some have the patch, and test images on which it says what is right, and what is wrong.

    White: on a share of the images of one class. Grey: on a share of all, drawn at random.
    """
    draw, clean = torch.Generator().manual_seed(seed), data.clean_train.select(slice(n))
    if patch == GREY:
        dirty, chosen = data.train.select(slice(n)), torch.randperm(n, generator=draw) < round(share * n)
        tests = [add_decoy(data.clean_test, informative=True), data.test]
    else:
        label = seed % (int(clean.targets.max()) + 1)
        own = (clean.targets == label).nonzero().squeeze(1)
        chosen = torch.zeros(n, dtype=torch.bool)
        chosen[own[torch.randperm(len(own), generator=draw)[: round(share * len(own))]]] = True
        others = data.clean_test.select(data.clean_test.targets != label)
        dirty, tests = stamped(clean), [others, stamped(others)]
    where = chosen[:, None, None, None]
    inputs = torch.where(where, dirty.inputs, clean.inputs)
    return [replace(dirty, inputs=inputs, shortcuts=dirty.shortcuts & where), *tests]


def stamped(data: TensorData) -> TensorData:
    """All images with a white patch of four by four pixels in the lower left corner."""
    inputs, shortcuts = data.inputs.clone(), torch.zeros_like(data.inputs, dtype=torch.bool)
    inputs[:, :, -4:, :4], shortcuts[:, :, -4:, :4] = 1.0, True
    return replace(data, inputs=inputs, shortcuts=shortcuts)


def on_the_patch(cluster: Cluster, shortcuts: Tensor) -> list[bool]:
    """For each image of a cluster: is at least half of its patch inside the cluster's window?"""
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
    members = [(cluster.members, one) for cluster, one in zip(found, hits, strict=True)]
    shown = {row for rows, one in members for row, hit in zip(rows, one, strict=True) if hit}
    order = in_turns([(one.score, one.members) for one in found])
    seen = next((place for place, row in enumerate(order, 1) if row in shown), None)
    return {"rank": rank, "seen": seen, "clusters": len(found)}


@lru_cache(1)
def learnt(patch: str, share: float, seed: int, homogeneous: bool, quick: bool) -> tuple[nn.Module, TensorData, float]:
    """A network trained with some patches, its images, and how many points of accuracy it owes to them."""
    name, n, epochs = ("shapes", 600, 3) if quick else ("Fashion-MNIST", N, EPOCHS)
    train, right, misled = contaminated(patch, share, n, seed, confounded.load(name, 1000))
    model = confounded.fitted(train, homogeneous=homogeneous, epochs=epochs, seed=seed)[0].eval()
    accuracies = [loops.accuracy(model, test.select(slice(TESTED))) for test in (right, misled)]
    return model, train, accuracies[0] - accuracies[1]


@lab.remember
def searched(patch: str, share: float, maps: str, seed: int, quick: bool) -> dict[str, Any]:
    """Train with some patches, look, and see where they stand."""
    model, train, reliance = learnt(patch, share, seed, maps != REGULAR, quick)
    pictures = Pictures.of_tensors(TensorData(train.inputs, train.targets, train.name))
    rows = sample(range(len(pictures)), 200 if quick else LOOKED_AT, seed)
    method = InputXGradient(model) if maps == REGULAR else XGradient(model, degree=1.0)
    survey = look(method, pictures, rows)
    if maps == PIXELS:
        survey = replace(survey, maps=cells(pictures.batch(rows)).numpy())
    found = find_clusters(model, pictures, survey, seed=seed)
    patches = int(train.shortcuts[rows].any((1, 2, 3)).sum())
    at_random = (len(rows) + 1) / (patches + 1)  # images that are seen on average up to the first with a patch
    return {"reliance": reliance, "at random": at_random, **effort(found, train.shortcuts)}


def run(*, quick: bool) -> lab.Result:
    """Every share with every kind of maps, seed by seed."""
    shares, seeds = ((1.0,), 1) if quick else (SHARES, SEEDS)
    found = [
        {"patch": patch, "share": share, "maps": maps, **searched(patch, share, maps, seed, quick)}
        for patch, share in product((WHITE, GREY), shares)
        for maps in (X, PIXELS, REGULAR)
        for seed in range(seeds)
    ]
    return summary(pd.DataFrame(found), "shapes" if quick else "Fashion-MNIST")


def summary(runs: pd.DataFrame, data: str) -> lab.Result:
    """A line for each kind of patch, each share and each kind of maps."""
    rows = []
    for (patch, share, maps), part in runs.groupby(["patch", "share", "maps"], sort=False):
        rows.append(
            {
                "patch": patch,
                "share with it": f"{100 * share:g} %",
                "maps": maps,
                "reliance": part["reliance"].mean(),
                "reliance ±": part["reliance"].std(),
                "rank": middle(part["rank"]),
                "of clusters": round(part["clusters"].mean()),
                "images seen": middle(part["seen"]),
                "at random": round(part["at random"].mean()),
                "seeds": len(part),
            }
        )
    relying = runs[runs["reliance"] > 5]
    found = (relying["seen"] <= 10).groupby(relying["maps"]).agg(["sum", "size"])
    words = [f"{maps} {found['sum'][maps]} of {found['size'][maps]}" for maps in found.index]
    verdict = (
        "Trainings in which a network that gains more than 5 points from the patch shows it in one of the first ten "
        f"images of the wall: {'; '.join(words)}."
    )
    title = "Studio: finding an unknown shortcut"
    return lab.Result(title, pd.DataFrame(rows), verdict, NOTE, data, "0 to 4")


def middle(values: pd.Series) -> str:
    """Median and range of what was found, and in how many of the seeds it was, where not in all.

    >>> middle(pd.Series([1, 3, 2])), middle(pd.Series([4, None, 4])), middle(pd.Series([None]))
    ('2 (1–3)', '4, found in 2 of 3', 'not found')
    """
    found = sorted(int(value) for value in values.dropna())
    if not found:
        return "not found"
    words = f"{statistics.median_low(found)}" + (f" ({found[0]}–{found[-1]})" if found[0] != found[-1] else "")
    return words if len(found) == len(values) else f"{words}, found in {len(found)} of {len(values)}"


NOTE = """\
Share with it: of the images of one class, or of all. Reliance: accuracy on at least 2,000 test images without the patch
(white), or with that of their class (grey), less accuracy with the patch of another class, in points; near zero the
network has not learnt the shortcut, and there is nothing to find. Rank: of the first cluster most of whose images have
at least half of their patch in its window; median of the seeds, and range. Images seen: going through the wall, one
image of each suspicious cluster in turn, up to the first with its patch in the window. At random: how many are seen, on
average, up to the first with a patch, by somebody who recognises it without a heat map. All rows have the studio's
clustering and its ranking, by what predictions lose without the window; they differ in the maps and in the network.
Windows and ranking were chosen on the first two seeds."""
