"""Watching a model at work: is a decoy patch that is fed into a stream noticed, by what, and how often for nothing?

Two networks without biases see Fashion-MNIST. One was trained on images whose class a patch gives away, and uses it
(`shortcut`); the other was trained on the same images with X-Gradient's prior against it (`mended`). A reference of
clean test images is compared with a stream of other test images, of which a share carries a patch: that of its own
class (`informative`: accuracy does not fall) or of a random one. Watched are the attributions (share of the magnitude
and signed share of 7 × 7 windows, and how unusual rows are, as `axiograd compare` tests them), the inputs (mean of the
same windows, and how unusual rows are) and the accuracy (which needs labels). Each watcher is one permutation test at
5 %, adjusted for all of its numbers. The means alone are watched too, for comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from axiograd.attribution import XGradient
from axiograd.datasets import TensorData, add_decoy
from axiograd.experiments.confounded import Confounded, load
from axiograd.experiments.decoy_training import METHODS, fitted
from axiograd.experiments.item import Cell, Item, Plan, Setting, Table, Work
from axiograd.experiments.loop import accuracy
from axiograd.experiments.records import Records
from axiograd.scale.permutation import RowBlock, two_samples, unusual_columns
from axiograd.scale.summaries import Windows

NETWORKS = {"shortcut": "none-x", "mended": "x-gradient"}
PATCHES = ("informative", "random")
SHARES = (0.005, 0.01, 0.02, 0.05)
WATCHERS = ("attributions", "inputs", "accuracy")
MEANS = {"attributions": "attributions, means alone", "inputs": "inputs, means alone"}
ALPHA, PERMUTATIONS, WINDOW = 0.05, 59, 4


@dataclass(frozen=True)
class StreamSize:
    """Streams, their rows, and how long the networks are trained."""

    rows: int
    null_streams: int
    streams: int
    n_train: int
    epochs: int
    weight: float
    data: str


SIZES = {
    "quick": StreamSize(100, 20, 4, 1000, 4, 1.0, "shapes"),
    "real": StreamSize(1000, 1000, 100, 10_000, 3, 1.0, "fashion-mnist"),
}


def images(name: str) -> Confounded:
    """The set of a size."""
    return load(name, n_val=100 if name == "shapes" else 5000)


@cache
def trained(name: str, scale: str, seed: int) -> nn.Sequential:
    """One of the two networks."""
    size = SIZES[scale]
    some = images(size.data).train.select(slice(size.n_train))
    return fitted(METHODS[NETWORKS[name]], size.weight, some, epochs=size.epochs, seed=seed)[0].eval()


@cache
def watched(name: str, scale: str, patch: str, seed: int) -> dict[str, NDArray[Any]]:
    """What each watcher sees of every test image, without a patch (`""`) or with one: ``[images, columns]``."""
    model, data = trained(name, scale, seed), marked(scale, patch)
    found: dict[str, list[NDArray[Any]]] = {watcher: [] for watcher in WATCHERS}
    method, windows = XGradient(model), Windows(WINDOW)
    for x, y, *_ in data.batches(500):
        explained = method.explain(x, model(x).detach().argmax(1))
        attributions: Any = explained.attributions
        sums = windows(attributions)["windows"].astype(np.float64)
        whole = np.abs(sums).sum(1, keepdims=True)
        shares = sums / np.where(whole > 0, whole, 1.0)
        found["attributions"].append(np.concatenate([np.abs(shares), shares], axis=1))
        found["inputs"].append(windows(x)["windows"].astype(np.float64))
        found["accuracy"].append((explained.outputs.argmax(1) == y).double().numpy()[:, None])
    return {watcher: np.concatenate(parts) for watcher, parts in found.items()}


def marked(scale: str, patch: str) -> TensorData:
    """The test images, all of them with a patch or none."""
    clean = images(SIZES[scale].data).clean_test
    return add_decoy(clean, informative=patch == "informative", seed=3) if patch else clean


def stream(name: str, patch: str, share: float, setting: Setting) -> dict[str, Any]:
    """How many streams each watcher raises an alarm for."""
    size = SIZES[setting.scale]
    clean = watched(name, setting.scale, "", setting.seed)
    dirty = watched(name, setting.scale, patch, setting.seed) if patch else clean
    n = len(clean["accuracy"])
    trials = size.streams if patch else size.null_streams
    alarms = dict.fromkeys((*WATCHERS, *MEANS.values()), 0)
    dropped = 0.0
    after = np.arange(2 * size.rows) >= size.rows
    for trial in range(trials):
        generator = np.random.default_rng(
            [setting.seed, trial, round(share * 1000), PATCHES.index(patch) if patch else 2]
        )
        rows = generator.permutation(n)[: 2 * size.rows]
        fed = np.zeros(2 * size.rows, bool)
        fed[size.rows :] = generator.random(size.rows) < share
        for watcher in WATCHERS:
            values = np.where(fed[:, None], dirty[watcher][rows], clean[watcher][rows])
            blocks = [RowBlock(values, np.arange(len(rows)))]
            if watcher in MEANS:
                found = two_samples(blocks, after, PERMUTATIONS, trial)
                alarms[MEANS[watcher]] += bool(found.p[0].min() <= ALPHA)
                windows = values[:, : clean["inputs"].shape[1]]
                blocks.append(RowBlock(unusual_columns(windows), np.arange(len(rows)), "rows"))
            found = two_samples(blocks, after, PERMUTATIONS, trial)
            alarms[watcher] += bool(min(p.min() for p in found.p) <= ALPHA)
            if watcher == "accuracy":
                dropped += float(values[~after].mean() - values[after].mean())
    return {"trials": trials, "alarms": alarms, "accuracy_lost": round(100 * dropped / trials, 3)}


def networks(name: str, setting: Setting) -> dict[str, Any]:
    """Accuracy on clean images, and on those with a patch of their own or a random class."""
    model, scale = trained(name, setting.scale, setting.seed), setting.scale
    return {patch or "clean": round(accuracy(model, marked(scale, patch)), 2) for patch in ("", *PATCHES)}


def plan(setting: Setting) -> Plan:
    """Both networks, streams without a patch, and streams with each share of each kind."""
    size = SIZES[setting.scale]

    work = [Work({"network": n, "what": "accuracy"}, partial(networks, n, setting), 100) for n in NETWORKS]
    for n in NETWORKS:
        for patch, share in [("", 0.0), *product(PATCHES, SHARES)]:
            key = {"network": n, "what": "streams", "patch": patch or "none", "share": share}
            cost = size.streams if patch else size.null_streams
            work.append(Work(key, partial(stream, n, patch, share, setting), cost))
    settings: Mapping[str, Any] = {
        "rows": size.rows,
        "alpha": ALPHA,
        "permutations": PERMUTATIONS,
        "window": WINDOW,
        "n_train": size.n_train,
        "epochs": size.epochs,
        "weight": size.weight,
        "seed": setting.seed,
    }
    return Plan.of(images(size.data).clean_test.name, settings, work)


def table(records: Records) -> Table:
    """Alarms in per cent of the streams; those without a patch are false."""
    rows: list[tuple[Cell, ...]] = []
    pieces = records.find(what="streams")
    whole = any("inputs, means alone" in piece.values["alarms"] for piece in pieces)
    shown = {name: name for name in (*WATCHERS, *MEANS.values())}
    if not whole:  # of a time when the means were all that was watched
        shown = {MEANS.get(name, name): name for name in WATCHERS}
    for piece in pieces:
        key, values = piece.key, piece.values
        trials = values["trials"]
        alarms = (f"{100 * values['alarms'][watcher] / trials:.1f}" for watcher in shown.values())
        lost = f"{values['accuracy_lost']:.2f}"
        rows.append((key["network"], key["patch"], f"{100 * key['share']:g} %", *alarms, lost, trials))
    header = ("network", "patch", "share", *shown, "points of accuracy lost", "streams")
    return Table(header, tuple(rows), "\n\n".join([_NOTE.format(**records.settings), *_accuracies(records)]))


_NOTE = (
    "Alarms in per cent of streams of {rows} images, each against {rows} clean ones; a row without a patch counts "
    "false alarms, of which the tests promise at most 5 %. `shortcut` relies on the patch, `mended` was trained with "
    "X-Gradient's prior not to. An alarm by the inputs says that images changed, whether or not the network cares; one "
    "by the attributions, that what it looks at did; one by the accuracy needs labels."
)


def _accuracies(records: Records) -> list[str]:
    told = [
        f"`{piece.key['network']}`: {piece.values['clean']:.1f} % right on clean images, "
        f"{piece.values['informative']:.1f} with the patch of their class, {piece.values['random']:.1f} with another."
        for piece in records.find(what="accuracy")
    ]
    return [" ".join(told)] if told else []


ITEM = Item("watch", "Watching a stream for a shortcut", plan, table, scales=("quick", "real"))
