"""Does a prior make a network right for the right reasons? Decoy (Fashion-)MNIST and ColorMNIST.

    python -m axiograd.experiments.decoy fashion-mnist --out results/decoy

One small network, with biases (regular) and without (X), is trained on images that give their class away, with and
without a penalty on attribution to the feature that does so (`axiograd.priors.RightReasons`), and tested where that
feature is worthless. Each method's λ is the best of a grid on held-out images, on a subset of the training images and
with the first seed; where the best is at an end, the grid goes on there, at most twice. See
`axiograd.experiments.confounded` for what those images are, and what is masked. EG(32) takes the λ of EG(1),
as the paper does, and IG(32) that of X-Gradient; both run on the subset only, beside X-Gradient on that subset.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from axiograd.errors import ConfigurationError
from axiograd.experiments.confounded import SETS, Confounded, load
from axiograd.experiments.decoy_training import BATCH, LEARNING_RATE, METHODS, train
from axiograd.experiments.records import Piece, Records, markdown_table, mean_and_std, provenance
from axiograd.runs.files import write_atomically

GRID = (0.1, 1.0, 10.0, 100.0)
#: How often the grid goes on beyond an end.
EXTENSIONS = 2
Say = Callable[[str], None]

ON_ALL = tuple(name for name, method in METHODS.items() if not method.subset_only)
ON_SUBSET = ("none", "none-x", "eg1", "eg32", "ig32", "x-gradient")


@dataclass(frozen=True)
class Decoy:
    """The experiment on one set: settings, data, and the records that it fills."""

    data: Confounded
    records: Records
    seeds: int
    epochs: Mapping[int, int]
    n_subset: int
    grid: tuple[float, ...]
    say: Say

    def choose(self, name: str) -> float:
        """The λ with the best accuracy on held-out images, in a grid that goes on where the best is at an end."""
        method = METHODS[name]
        if method.attribution is None:
            return 0.0
        if method.weight_of is not None:
            return self.choose(method.weight_of)
        grid = list(self.grid)
        # A single λ is no question.
        for extension in range(EXTENSIONS + 1 if len(grid) > 1 else 1):
            found = {weight: self.training(name, weight, self.n_subset, 0)["val"] for weight in grid}
            best = max(grid, key=found.__getitem__)
            if extension == EXTENSIONS or grid[0] < best < grid[-1]:
                break
            grid = [*grid, best * 10] if best == grid[-1] else [best / 10, *grid]
        chosen = {"weight": best, "val": {f"{weight:g}": value for weight, value in found.items()}}
        if self.records.get(part="choice", method=name) != chosen:
            self.records.add(chosen, part="choice", method=name)
        return best

    def measure(self, name: str, n: int) -> None:
        """All seeds of one row."""
        weight = self.choose(name)
        for seed in range(self.seeds):
            self.training(name, weight, n, seed)

    def training(self, name: str, weight: float, n: int, seed: int) -> Mapping[str, Any]:
        """One training, unless it has been done."""
        key = {"part": "training", "method": name, "weight": weight, "n_train": n, "seed": seed}
        stored = self.records.get(**key)
        if stored is None:
            self.say(f"{name}, λ = {weight:g}, {n} images, seed {seed}")
            method = METHODS[name]
            stored = self.records.add(train(method, weight, self.data, n=n, epochs=self.epochs[n], seed=seed), **key)
            self.say(f"  test {stored['test']:.1f} %, {stored['seconds_per_epoch']:.1f} s per epoch")
        return stored


def run(
    name: str,
    out: str | os.PathLike[str],
    *,
    seeds: int = 5,
    epochs: int = 5,
    methods: Sequence[str] = ON_ALL,
    n_train: int = 55_000,
    n_subset: int = 10_000,
    subset_epochs: int = 10,
    subset_methods: Sequence[str] = ON_SUBSET,
    subset_seeds: int = 2,
    grid: Sequence[float] = GRID,
    n_val: int = 5000,
    data: Confounded | None = None,
    command: str = "axiograd.experiments.decoy.run",
    say: Say = lambda line: None,  # noqa: ARG005
) -> Path:
    """Fill `out/name.json`, continuing what is there, and write the table `out/name.md`."""
    if unknown := [method for method in (*methods, *subset_methods) if method not in METHODS]:
        raise ConfigurationError(f"no method {', '.join(unknown)}; there are: {', '.join(METHODS)}")
    if expensive := [method for method in methods if METHODS[method].subset_only]:
        raise ConfigurationError(f"{', '.join(expensive)} cost 32 times as much; ask for them in subset_methods")
    data = load(name, n_val=n_val) if data is None else data
    n_train, n_subset = min(n_train, len(data.train)), min(n_subset, len(data.train))
    settings: dict[str, Any] = {
        "epochs": epochs,
        "batch": BATCH,
        "learning_rate": LEARNING_RATE,
        "n_val": len(data.val),
    }
    settings |= {"n_subset": n_subset, "subset_epochs": subset_epochs, "grid": list(grid)}
    records = Records(Path(out) / f"{name}.json", command=command, data=data.name, settings=settings)
    lengths = {n_subset: subset_epochs, n_train: epochs}
    whole = Decoy(data, records, seeds, lengths, n_subset, tuple(grid), say)
    part = Decoy(data, records, subset_seeds, lengths, n_subset, tuple(grid), say)
    table = Path(out) / f"{name}.md"
    jobs = [(whole, method, n_train) for method in methods] + [(part, method, n_subset) for method in subset_methods]
    for experiment, method, n in jobs:
        experiment.measure(method, n)
        write_atomically(table, render(records).encode())
    return table


def render(records: Records) -> str:
    """The records as Markdown: a table for each number of training images."""
    sizes = sorted({piece.key["n_train"] for piece in records.find(part="training")}, reverse=True)
    notes = (
        "Accuracy in per cent on test images whose confounder says nothing, and on those without one; mean ± standard "
        "deviation of the seeds. Clean training has no confounder in training either. Time is processor time per "
        "epoch relative to training without a prior on the same network. λ is the best of the grid, which goes on "
        "where the best is at its end, on held-out training images with a random confounder (EG(32): that of EG(1); "
        "IG(32): that of X-Gradient)."
    )
    tables = [f"## {n} training images\n\n{table}" for n in sizes if (table := _table(records, n))]
    title = f"# {records.data.removesuffix(' train')}: right for the right reasons"
    verdict = _verdict(records, sizes[0]) if sizes else None
    return "\n\n".join([title, *tables, notes, *([verdict] if verdict else []), provenance(records)]) + "\n"


#: Why, by what the confounder is.
_PATCHES = (
    "All priors see the patch, because it is bright where images are mostly black: a small gradient there is enough, "
    "and exactness adds nothing. What X-Gradient spares is the choice between a fast method and one that keeps the "
    "axioms: Expected Gradients and Integrated Gradients with 32 steps, in the second table, are no better."
)
_COLOURS = (
    "Colours differ in lightness too, which no prior here forbids, and which a network without biases cannot use, "
    "because F(αx) = αF(x) has the same largest class."
)


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
    same = mean("gradient-x")
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


def _table(records: Records, n: int) -> str | None:
    found = {name: _chosen(records, name, n) for name in METHODS}
    found = {name: pieces for name, pieces in found.items() if pieces}
    seconds = {name: statistics.median(p.values["seconds_per_epoch"] for p in found[name]) for name in found}
    rows = []
    for name, pieces in found.items():
        method = METHODS[name]
        plain = seconds.get("none-x" if method.homogeneous else "none")
        rows.append(
            (
                method.label,
                "X" if method.homogeneous else "regular",
                f"{pieces[0].key['weight']:g}" if method.attribution else None,
                mean_and_std([piece.values["test"] for piece in pieces]),
                mean_and_std([piece.values["clean_test"] for piece in pieces]),
                None if plain is None else f"{seconds[name] / plain:.2f}",
                len(pieces),
            )
        )
    header = ("training", "network", "λ", "accuracy", "without confounder", "time", "seeds")
    return markdown_table(header, rows) if rows else None


def _chosen(records: Records, name: str, n: int) -> list[Piece]:
    """The trainings with the λ that was chosen; those of the rest of the grid are not results."""
    method = METHODS[name]
    choice = records.get(part="choice", method=method.weight_of or name)
    weight = 0.0 if method.attribution is None else choice["weight"] if choice else None
    return records.find(part="training", method=name, weight=weight, n_train=n)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=tuple(SETS))
    parser.add_argument("--out", type=Path, default=Path("results/decoy"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--methods", default=",".join(ON_ALL), help="comma-separated")
    parser.add_argument("--n-train", type=int, default=55_000)
    parser.add_argument("--n-val", type=int, default=5000)
    parser.add_argument("--n-subset", type=int, default=10_000, help="images for choosing λ, and for EG(32) and IG(32)")
    parser.add_argument("--subset-epochs", type=int, default=10)
    parser.add_argument("--subset-methods", default=",".join(ON_SUBSET), help="comma-separated, or empty for none")
    parser.add_argument("--subset-seeds", type=int, default=2)
    parser.add_argument("--grid", type=float, nargs="+", default=list(GRID))
    parser.add_argument("--threads", type=int, default=1, help="one, so that processor seconds compare")
    options = vars(parser.parse_args(given))
    torch.set_num_threads(options.pop("threads"))
    for key in ("methods", "subset_methods"):
        options[key] = [name for name in options[key].split(",") if name]
    command = shlex.join(["python", "-m", "axiograd.experiments.decoy", *given])
    table = run(**options, command=command, say=lambda line: print(line, file=sys.stderr, flush=True))  # noqa: T201
    sys.stdout.write(table.read_text())


if __name__ == "__main__":
    main()
