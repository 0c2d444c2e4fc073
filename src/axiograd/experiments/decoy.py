"""Does a prior make a network right for the right reasons? Decoy (Fashion-)MNIST and ColorMNIST.

One small network, with biases (regular) and without (X), is trained on images that give their class away, with and
without a penalty on attribution to the feature that does so (`axiograd.priors.RightReasons`), and tested where that
feature is worthless. Each method's λ is the best of a grid on held-out images, on a subset of the training images and
with the first seed; where the best is at an end, the grid is extended there, at most twice. See
`axiograd.experiments.confounded` for what those images are, and what is masked. EG(32) takes the λ of EG(1),
as the paper does, and IG(32) that of X-Gradient; both run on the subset only, beside X-Gradient on that subset.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from axiograd.experiments.confounded import load
from axiograd.experiments.decoy_training import BATCH, LEARNING_RATE, METHODS, train
from axiograd.experiments.item import Cell, Item, Plan, Setting, Stage, Table, Work
from axiograd.experiments.records import RecordedPiece, Records, mean_and_std

#: How often the grid is extended beyond an end.
EXTENSIONS = 2
ON_ALL = tuple(name for name, method in METHODS.items() if not method.subset_only)
ON_SUBSET = ("none", "none-x", "eg1", "eg32", "ig32", "x-gradient")
#: Tells what the network does from what the attribution does; patches, which every prior sees, do not ask it.
CONTROL = "gradient-x"


@dataclass(frozen=True)
class DecoySize:
    """How long a set is trained on, and with what."""

    epochs: int
    subset_epochs: int
    methods: tuple[str, ...] = tuple(name for name in ON_ALL if name != CONTROL)
    subset_methods: tuple[str, ...] = ON_SUBSET
    seeds: int = 5
    subset_seeds: int = 1
    n_train: int = 55_000
    n_subset: int = 10_000
    n_val: int = 5000
    grid: tuple[float, ...] = field(default=(0.1, 1.0, 10.0, 100.0))


SIZES = {
    "fashion-mnist": DecoySize(5, 10),
    "mnist": DecoySize(3, 5),
    "color-mnist": DecoySize(3, 5, ON_ALL, (*ON_SUBSET, CONTROL)),
    "shapes": DecoySize(
        6, 6, ("none", "none-x", "gradient", "cdep", "x-gradient"), (), seeds=1, n_train=3000, n_subset=1000, n_val=500
    ),
}


def plan(name: str, setting: Setting) -> Plan:
    """The grid of each λ and its extensions, then every seed with what was chosen; shapes where nothing is at hand."""
    name = "shapes" if setting.scale == "quick" else name
    size = SIZES[name]
    data = load(name, n_val=size.n_val)
    whole, part = (min(n, len(data.train)) for n in (size.n_train, size.n_subset))
    epochs = {part: size.subset_epochs, whole: size.epochs}
    settings: dict[str, Any] = {
        "epochs": size.epochs,
        "batch": BATCH,
        "learning_rate": LEARNING_RATE,
        "n_val": len(data.val),
    }
    settings |= {"n_subset": part, "subset_epochs": size.subset_epochs, "grid": list(size.grid)}

    def work(method: str, weight: float, n: int, seed: int) -> Work:
        key = {"part": "training", "method": method, "weight": weight, "n_train": n, "seed": seed}
        how = partial(train, METHODS[method], weight, data, n=n, epochs=epochs[n], seed=seed)
        return Work(key, how, METHODS[method].cost * n * epochs[n])

    first = setting.seed * 1000

    def search(extensions: int, records: Records) -> Sequence[Work]:
        searched = dict.fromkeys(METHODS[m].weight_of or m for m in (*size.methods, *size.subset_methods))
        return [
            work(method, weight, part, first)
            for method in searched
            if METHODS[method].attribution is not None
            for weight in grid(records, method, extensions)
            if extensions == 0 or weight not in grid(records, method, extensions - 1)
        ]

    def seeds(records: Records) -> Sequence[Work]:
        jobs = [
            (m, whole, seed) for m in size.methods for seed in range(first, first + min(size.seeds, METHODS[m].seeds))
        ]
        jobs += [(m, part, seed) for m in size.subset_methods for seed in range(first, first + size.subset_seeds)]
        return [
            work(method, weight, n, seed) for method, n, seed in jobs if (weight := choose(records, method)) is not None
        ]

    stages: list[Stage] = [partial(search, extensions) for extensions in range(EXTENSIONS + 1)]
    return Plan(data.name, settings, (*stages, seeds))


def grid(records: Records, name: str, extensions: int) -> list[float]:
    """The candidates for a method's λ: those of the settings, and beyond an end as long as the best is there."""
    weights = [float(weight) for weight in records.settings["grid"]]
    # A single λ is not a choice.
    for _ in range(extensions if len(weights) > 1 else 0):
        best = _best(records, name, weights)
        if best is None or weights[0] < best < weights[-1]:
            break
        weights = [*weights, best * 10] if best == weights[-1] else [best / 10, *weights]
    return weights


def choose(records: Records, name: str) -> float | None:
    """The λ with the best accuracy on held-out images; None where some of the grid is missing."""
    method = METHODS[name]
    if method.attribution is None:
        return 0.0
    if method.weight_of is not None:
        return choose(records, method.weight_of)
    return _best(records, name, grid(records, name, EXTENSIONS))


def _best(records: Records, name: str, weights: Sequence[float]) -> float | None:
    key = {"part": "training", "method": name, "n_train": records.settings["n_subset"]}
    found = {weight: records.find(**key, weight=weight) for weight in weights}
    values = {
        weight: min(pieces, key=lambda piece: piece.key["seed"]).values["val"]
        for weight, pieces in found.items()
        if pieces
    }
    return max(values, key=values.__getitem__) if len(values) == len(weights) else None


def table(records: Records) -> Table:
    """A line for each number of training images and method, and what they say."""
    sizes = sorted({piece.key["n_train"] for piece in records.find(part="training")}, reverse=True)
    rows = tuple(row for n in sizes for row in _rows(records, n))
    header = ("images", "training", "network", "λ", "accuracy", "without confounder", "time", "seeds")
    verdict = _verdict(records, sizes[0]) if sizes else None
    return Table(header, rows, "\n\n".join([_NOTE, *([verdict] if verdict else [])]))


_NOTE = (
    "Accuracy in per cent on test images whose confounder says nothing, and on those without one; mean ± standard "
    "deviation of the seeds. Clean training has no confounder in training either. Priors see the attributions of a "
    "random combination of outputs unless the row says otherwise. Time is processor time per epoch relative to "
    "training without a prior on the same network; rows were trained on different days and by different commits, so "
    "that times compare roughly. λ is the best of the grid, which is extended up to twice where the best is at its "
    "end, on held-out training images with a random confounder (EG(32): that of EG(1); IG(32): that of X-Gradient). "
    "CDEP penalises the region's contextual decomposition, summed over all outputs."
)
#: Why, by what the confounder is.
_PATCHES = (
    "All priors see the patch, because it is bright where images are mostly black: a small gradient there is enough, "
    "and exactness adds nothing. What X-Gradient spares is the choice between a fast method and one that keeps the "
    "axioms: Expected Gradients and Integrated Gradients with 32 steps, on fewer images, are no better."
)
_COLOURS = (
    "Colours differ in lightness too, which no prior here forbids, and which a network without biases cannot use, "
    "because F(αx) = αF(x) has the same largest class."
)


def _rows(records: Records, n: int) -> list[tuple[Cell, ...]]:
    found = {name: pieces for name in METHODS if (pieces := _chosen(records, name, n))}
    seconds = {name: statistics.median(p.values["seconds_per_epoch"] for p in found[name]) for name in found}
    rows: list[tuple[Cell, ...]] = []
    for name, pieces in found.items():
        method = METHODS[name]
        plain = seconds.get("none-x" if method.homogeneous else "none")
        rows.append(
            (
                n,
                method.label,
                "X" if method.homogeneous else "regular",
                f"{pieces[0].key['weight']:g}" if method.attribution else None,
                mean_and_std([piece.values["test"] for piece in pieces]),
                mean_and_std([piece.values["clean_test"] for piece in pieces]),
                None if plain is None else f"{seconds[name] / plain:.2f}",
                len(pieces),
            )
        )
    return rows


def _chosen(records: Records, name: str, n: int) -> list[RecordedPiece]:
    """The trainings with the λ that was chosen; those of the rest of the grid are not results."""
    weight = choose(records, name)
    return [] if weight is None else records.find(part="training", method=name, weight=weight, n_train=n)


def _verdict(records: Records, n: int) -> str | None:
    """How X-Gradient compares with the best prior on the regular network, and with training without a confounder."""

    def mean(name: str, what: str = "test") -> float | None:
        values = [piece.values[what] for piece in _chosen(records, name, n)]
        return statistics.mean(values) if values else None

    ours, clean = mean("x-gradient"), mean("clean-x", "clean_test")
    names = [name for name, method in METHODS.items() if method.attribution and not method.homogeneous]
    others = {name: found for name in names if (found := mean(name)) is not None}
    if ours is None or clean is None or not others:
        return None
    best = max(others, key=others.__getitem__)
    why = _COLOURS if records.data.startswith("Colour") else _PATCHES
    same = mean(CONTROL)
    control = "" if same is None else f" A prior on the gradient of the X-DNN is {_points(same - ours)} X-Gradient."
    return (
        f"X-Gradient is {_points(ours - others[best])} the best prior on the regular network ({METHODS[best].label}), "
        f"and {_points(ours - clean)} the same network trained and tested without confounder. {why}{control}"
    )


def _points(difference: float) -> str:
    """A difference of accuracies in words.

    >>> _points(-0.13), _points(21.6)
    ('0.1 points below', '21.6 points above')
    """
    return f"{abs(difference):.1f} points {'above' if difference >= 0 else 'below'}"


def _item(name: str, title: str) -> Item:
    return Item(
        f"decoy-{name}", f"{title}: right for the right reasons", partial(plan, name), table, scales=("quick", "real")
    )


FASHION_MNIST = _item("fashion-mnist", "Decoy Fashion-MNIST")
MNIST = _item("mnist", "Decoy MNIST")
COLOR_MNIST = _item("color-mnist", "Colour MNIST")
