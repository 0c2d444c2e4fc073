"""Does a prior make a network right for the right reasons? Decoy Fashion-MNIST, Decoy MNIST and Colour MNIST.

One small network, with biases (regular) and without (X), is trained on images that give their class away, with and
without a penalty on attribution to the feature that does so, and tested where that feature is worthless. λ is the best
of a grid on held-out images, on a part of the training images; where the best is at an end, the grid goes on there.
"""

from typing import Any, NamedTuple

import pandas as pd
import torch.nn.functional as F

from axiograd.attribution import (
    ExpectedGradients,
    Gradient,
    InputXGradient,
    IntegratedGradients,
    LogGradient,
    XGradient,
    contextual_decomposition,
)
from experiments import confounded, lab, loops

#: Training, network, method of the prior, and further arguments of `confounded.right_reasons`.
ROWS: dict[str, tuple[str, str, Any, dict[str, Any]]] = {
    "clean": ("clean training", "regular", None, {}),
    "clean-x": ("clean training", "X", None, {}),
    "none": ("no prior", "regular", None, {}),
    "none-x": ("no prior", "X", None, {}),
    "rrr": ("RRR (log-gradient)", "regular", LogGradient, {"outputs": None}),
    "gradient": ("Gradient", "regular", Gradient, {}),
    "gradient-x": ("Gradient", "X", Gradient, {}),
    "input-x-gradient": ("Input × Gradient", "regular", InputXGradient, {}),
    "eg1": ("Expected Gradients (1)", "regular", ExpectedGradients, {"n_samples": 1}),
    "cdep": ("CDEP (contextual decomposition)", "regular", contextual_decomposition, {}),
    "x-gradient": ("X-Gradient", "X", XGradient, {}),
    "x-gradient-target": ("X-Gradient, true class only", "X", XGradient, {"outputs": "target"}),
    "x-gradient-residual": ("X-Gradient, residual", "X", XGradient, {"outputs": "residual"}),
    "eg32": ("Expected Gradients (32)", "regular", ExpectedGradients, {"n_samples": 32}),
    "ig32": ("Integrated Gradients (32)", "regular", IntegratedGradients, {"n_steps": 32}),
}
#: Rows that take the λ of another, and are trained on the part only: they take 60 times as long.
WEIGHT_OF = {"eg32": "eg1", "ig32": "x-gradient"}


class Size(NamedTuple):
    rows: list[str]
    #: Images and epochs: of all, and of the part that λ is chosen on.
    whole: tuple[int, int]
    part: tuple[int, int]
    n_val: int = 5000
    seeds: int = 5
    grid: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0)


_PATCHES = [name for name in ROWS if name != "gradient-x"]  # every prior sees a patch: no need for this control
SIZES = {
    "Colour MNIST": Size(list(ROWS), (55_000, 3), (10_000, 5)),
    "Fashion-MNIST": Size(_PATCHES, (55_000, 5), (10_000, 10)),
    "MNIST": Size(_PATCHES, (55_000, 3), (10_000, 5)),
}
_FEW = ["clean-x", "none", "none-x", "gradient", "cdep", "x-gradient"]
QUICK = {"shapes": Size(_FEW, (1500, 2), (500, 2), n_val=500, seeds=1, grid=(1.0,))}


def prior(method, weight, references, given) -> confounded.Objective:
    """The loss with the prior of a row."""
    if method is ExpectedGradients:
        return confounded.right_reasons(weight, method, references=references, **given)
    if method is not contextual_decomposition:
        return confounded.right_reasons(weight, method, **given)

    def cdep(model, x, y, wrong):  # Rieger et al., 2020: the region is to contribute nothing to any output
        region, rest = contextual_decomposition(model, x, wrong)
        return F.cross_entropy(region + rest, y) + weight * region.abs().sum(1).mean()

    return cdep


@lab.remember
def trained(data: str, row: str, weight: float, n: int, epochs: int, seed: int, n_val: int) -> dict[str, float]:
    """Accuracies in per cent of one network, and processor seconds per epoch."""
    found, (_, network, method, given) = confounded.load(data, n_val), ROWS[row]
    images = (found.clean_train if row.startswith("clean") else found.train).select(slice(n))
    loss = None if method is None else prior(method, weight, images.inputs, given)
    how = {"homogeneous": network == "X", "epochs": epochs, "seed": seed}
    model, seconds = confounded.fitted(images, objective=loss, **how)
    parts = {"val": found.val, "test": found.test, "clean_test": found.clean_test}
    return {"seconds": seconds, **{name: loops.accuracy(model, part) for name, part in parts.items()}}


def best_weight(data: str, row: str, size: Size) -> float:
    """The λ with the best accuracy on held-out images; the grid is extended at most twice."""
    if ROWS[row][2] is None:
        return 0.0
    row, grid = WEIGHT_OF.get(row, row), list(size.grid)
    for _ in range(3):
        found = {weight: trained(data, row, weight, *size.part, 0, size.n_val)["val"] for weight in grid}
        best = max(found, key=found.__getitem__)
        if len(grid) == 1 or grid[0] < best < grid[-1]:
            break
        grid = [*grid, 10 * best] if best == grid[-1] else [best / 10, *grid]
    return best


def run(*, quick: bool) -> lab.Result:
    """Train with every λ of the grid, then with the best one and several seeds."""
    found = []
    for data, size in (QUICK if quick else SIZES).items():
        weights = {row: best_weight(data, row, size) for row in size.rows}
        whole = [(row, *size.whole, seed) for row in size.rows if row not in WEIGHT_OF for seed in range(size.seeds)]
        part = [(row, *size.part, 0) for row in size.rows if not row.startswith("clean")]
        for row, n, epochs, seed in whole + part:
            values = trained(data, row, weights[row], n, epochs, seed, size.n_val)
            found.append({"data": data, "images": n, "row": row, "weight": weights[row], **values})
    return summary(pd.DataFrame(found))


def summary(runs: pd.DataFrame) -> lab.Result:
    """A line for each number of training images and each row."""
    columns = {"test": "accuracy", "clean_test": "without confounder"}
    table = loops.compared(runs, ROWS, columns, by=["data", "images"])
    words = [_compared(data, part[part["images"] == part["images"].max()]) for data, part in table.groupby("data")]
    verdict = f"Accuracy where the confounder is worthless, with X-Gradient in the prior: {'; '.join(words)}."
    return lab.Result(TITLE, table, verdict, NOTE, ", ".join(table["data"].unique()), "0 to 4")


def _compared(data: str, table: pd.DataFrame) -> str:
    ours = float(table.loc[table["training"] == "X-Gradient", "accuracy"].iloc[0])
    clean = table[(table["training"] == "clean training") & (table["network"] == "X")]["without confounder"]
    others = table[(table["network"] == "regular") & (table["λ"] != "")]
    best = others.loc[others["accuracy"].idxmax()]
    return (
        f"{data} {ours:.1f} %, {ours - best['accuracy']:+.1f} points against the best prior on the regular network "
        f"({best['training']}), {ours - float(clean.iloc[0]):+.1f} against clean training"
    )


TITLE = "Decoys: right for the right reasons"
NOTE = """\
Accuracy in per cent on test images whose confounder says nothing, and on those without one; mean ± standard deviation
of the seeds. Clean training has no confounder in training either. Priors see the attributions of a random combination
of outputs unless the row says otherwise. Time is processor time per epoch relative to training without a prior on the
same network; rows were trained on different days, so that times compare roughly. λ is the best of the grid on held-out
training images with a random confounder (EG(32): that of EG(1); IG(32): that of X-Gradient). CDEP penalises the
region's contextual decomposition, summed over all outputs.

All priors see a patch, because it is bright where images are mostly black: a small gradient there is enough, and
exactness adds nothing. Colours differ in lightness too, which no prior here forbids, and which a network without biases
cannot use, because F(αx) = αF(x) has the same largest class; a prior on the gradient of the X-DNN, which is not exact,
does as well there."""
