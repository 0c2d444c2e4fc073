"""Watching a model at work: is a decoy patch that is fed into a stream noticed, by what, and how often for nothing?

Two networks without biases see Fashion-MNIST. One was trained on images whose class a patch gives away, and uses it
(`shortcut`); the other was trained on the same images with X-Gradient's prior against it (`fixed`). A reference of
clean test images is compared with a stream of other test images, of which a share carries a patch: that of its own
class (`informative`: accuracy does not fall) or of a random one. Watched are the attributions (share of the magnitude
and signed share of 7 × 7 windows, and how unusual rows are, as `axiograd compare` tests them), the inputs (mean of the
same windows, and how unusual rows are) and the accuracy (which needs labels). Each watcher is one permutation test at
5 %, adjusted for all of its numbers. The means alone are watched too, for comparison.
"""

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from axiograd import XGradient
from axiograd.datasets import TensorData, add_decoy
from axiograd.scale.permutation import RowBlock, two_samples
from axiograd.scale.summaries import Windows
from experiments import confounded, lab, loops

PATCHES, SHARES = ("informative", "random"), (0.005, 0.01, 0.02, 0.05)
WATCHERS = ("attributions", "inputs", "accuracy")
ALPHA, PERMUTATIONS, WINDOW = 0.05, 59, 4
#: The most unusual rows that are counted, as parts of all rows.
TOP = (0.05, 0.02, 0.01, 0.005)


def settings(quick: bool) -> tuple[str, int, int, int, int, int]:
    """Data, images and epochs to train, images in a stream, and numbers of streams without and with patches."""
    return ("shapes", 600, 2, 100, 4, 2) if quick else ("Fashion-MNIST", 10_000, 3, 1000, 1000, 100)


@cache
def trained(network: str, quick: bool):
    """One of the two networks."""
    data, n, epochs, *_ = settings(quick)
    images = confounded.load(data, 100 if quick else 5000).train.select(slice(n))
    prior = confounded.right_reasons(1.0) if network == "fixed" else None
    return confounded.fitted(images, homogeneous=True, epochs=epochs, seed=0, objective=prior)[0].eval()


def marked(patch: str, quick: bool) -> TensorData:
    """The test images, all of them with a patch or none."""
    clean = confounded.load(settings(quick)[0], 100 if quick else 5000).clean_test
    return add_decoy(clean, informative=patch == "informative", seed=3) if patch else clean


@cache
def watched(network: str, patch: str, quick: bool) -> dict[str, NDArray[Any]]:
    """What each watcher sees of every test image: ``[images, columns]``."""
    model, windows = trained(network, quick), Windows(WINDOW)
    found: dict[str, list[NDArray[Any]]] = {watcher: [] for watcher in WATCHERS}
    for x, y, *_ in marked(patch, quick).batches(500):
        explained = XGradient(model).explain(x, model(x).detach().argmax(1))
        sums = windows(explained.attributions)["windows"].astype(np.float64)
        whole = np.abs(sums).sum(1, keepdims=True)
        shares = sums / np.where(whole > 0, whole, 1.0)
        found["attributions"].append(np.concatenate([np.abs(shares), shares], axis=1))
        found["inputs"].append(windows(x)["windows"].astype(np.float64))
        found["accuracy"].append((explained.outputs.argmax(1) == y).double().numpy()[:, None])
    return {watcher: np.concatenate(parts) for watcher, parts in found.items()}


def unusual(values: NDArray[Any]) -> NDArray[Any]:
    """log maxⱼ |xᵢⱼ − median xⱼ| / spread of xⱼ of each row, and whether it is among the most unusual ones.

    A mark on one image in twenty hardly moves a mean. But each of these images has a window that few others have, so
    the marked images are among the most unusual ones, and they are all in one of the tables.
    """
    away = np.abs(values - np.median(values, axis=0))
    spread = np.sqrt((away**2).mean(0))
    score = np.log(np.where(spread > 0, away / np.where(spread > 0, spread, 1), 0).max(1) + 1e-6)
    place = pd.Series(-score).rank(method="first").to_numpy() - 1
    return np.stack([score, *(place < part * len(score) for part in TOP)], axis=1)


@lab.remember
def streams(network: str, patch: str, share: float, quick: bool) -> dict[str, float]:
    """Alarms of each watcher in per cent of the streams, and points of accuracy lost."""
    *_, rows, without, patched = settings(quick)
    clean = watched(network, "", quick)
    dirty = watched(network, patch, quick)
    trials, after = patched if patch else without, np.arange(2 * rows) >= rows
    alarms = dict.fromkeys((*WATCHERS, "attributions, means alone", "inputs, means alone"), 0)
    lost = 0.0
    for trial in range(trials):
        generator = np.random.default_rng([0, trial, round(share * 1000), PATCHES.index(patch) if patch else 2])
        chosen = generator.permutation(len(clean["accuracy"]))[: 2 * rows]
        fed = np.zeros(2 * rows, bool)
        fed[rows:] = generator.random(rows) < share
        for watcher in WATCHERS:
            values = np.where(fed[:, None], dirty[watcher][chosen], clean[watcher][chosen])
            blocks = [RowBlock(values, np.arange(2 * rows))]
            if watcher != "accuracy":
                found = two_samples(blocks, after, PERMUTATIONS, trial)
                alarms[f"{watcher}, means alone"] += bool(found.p[0].min() <= ALPHA)
                windows = values[:, : clean["inputs"].shape[1]]
                blocks.append(RowBlock(unusual(windows), np.arange(2 * rows), "rows"))
            found = two_samples(blocks, after, PERMUTATIONS, trial)
            alarms[watcher] += bool(min(p.min() for p in found.p) <= ALPHA)
        lost += 100 * float(values[~after].mean() - values[after].mean())  # of the last watcher, the accuracy
    found = {watcher: 100 * count / trials for watcher, count in alarms.items()}
    return {**found, "points of accuracy lost": lost / trials, "streams": trials}


def run(*, quick: bool) -> lab.Result:
    """Both networks, streams without a patch, and streams with each share of each kind."""
    rows, accuracies = [], {}
    for network in ("shortcut", "fixed"):
        for patch, share in [("", 0.0), *product(PATCHES, SHARES[2:] if quick else SHARES)]:
            values = streams(network, patch, share, quick)
            rows.append({"network": network, "patch": patch or "none", "share": f"{100 * share:g} %", **values})
        model = trained(network, quick)
        accuracies[network] = [loops.accuracy(model, marked(patch, quick)) for patch in ("", *PATCHES)]
    return summary(pd.DataFrame(rows), accuracies, settings(quick)[0])


def summary(table: pd.DataFrame, accuracies: dict[str, list[float]], data: str) -> lab.Result:
    """Alarms in per cent of the streams; those without a patch are false."""
    found = table.set_index(["network", "patch", "share"])
    alarms = [found.loc["shortcut", "informative", "5 %"], found.loc["shortcut", "none", "0 %"]]
    by = {watcher: f"{alarms[0][watcher]:.0f} % (false alarms {alarms[1][watcher]:.1f})" for watcher in WATCHERS}
    verdict = (
        "A patch on 5 % of the images, which the network relies on and which costs no accuracy, raises alarms by "
        f"attributions in {by['attributions']}, by inputs in {by['inputs']} and by accuracy in {by['accuracy']}."
    )
    words = [
        f"`{network}`: {clean:.1f} % right on clean images, {own:.1f} with the patch of their class, {other:.1f} with "
        "a random one."
        for network, (clean, own, other) in accuracies.items()
    ]
    return lab.Result("Watching a stream for a shortcut", table, verdict, "\n".join([NOTE, "", *words]), data, "0")


NOTE = """\
Alarms in per cent of streams of 1,000 images, each against 1,000 clean ones; a row without a patch counts false alarms,
of which the tests promise at most 5 %. `shortcut` relies on the patch, `fixed` was trained with X-Gradient's prior not
to. An alarm by the inputs says that images changed, whether or not the network cares; one by the attributions, that
what it looks at did; one by the accuracy needs labels."""
