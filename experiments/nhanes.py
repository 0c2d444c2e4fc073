"""The experiment of Figure 1: a prior for sparse attributions on NHANES I, many small networks at a time.

Each of 200 subsamples trains a network of 118-512-128-32-1 on 100 rows by

    L = mean binary cross-entropy of the logit F + λ·Ω(A),    Ω = −Gini of the mean over the batch of |A|,

with A = x·∇F (X-Gradient), ∇F (Grad), ∇(log p + log(1 − p)) (RRR), or the mean over references r of
(x − r)·∇F(r + α(x − r)) (EG); 100 rows choose the epoch and λ, all others test.
"""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from axiograd.datasets import TensorData, nhanes
from axiograd.models import MLP
from experiments import lab

#: The bars of Figure 1 (left); networks of the last and of the second have no biases.
MODELS = ("Unreg", "Unreg w/o bias", "RRR", "Grad", "EG", "X-Gradient w/o bias")
GRID = (0.01, 0.1, 1.0, 10.0, 100.0)
ROWS, EPOCHS, LEARNING_RATE = 100, 100, 1e-3
#: Models at a time: the parameters and Adam's two moments of more would leave the cache.
AT_ONCE = 4


@cache
def table(quick: bool) -> TensorData:
    """NHANES I, or a table that needs no download."""
    return procedural() if quick else nhanes()


def described(quick: bool) -> str:
    data = table(quick)
    return f"{data.name}, {len(data)} rows × {data.inputs.shape[1]} features"


def procedural(n: int = 1000, features: int = 20) -> TensorData:
    """A table of which three features tell; a tenth of the values is missing."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(n, features, generator=generator, dtype=torch.float64)
    score = inputs[:, :3] @ torch.tensor([2.5, -1.6, 1.0], dtype=torch.float64) + 2.2
    targets = (torch.rand(n, generator=generator, dtype=torch.float64) < score.sigmoid()).double()
    inputs[torch.rand(n, features, generator=generator) < 0.1] = torch.nan
    return TensorData(inputs, targets, f"procedural table ({n} rows, 3 of {features} features tell)")


def split(n: int, i: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of subsample i to train, validate and test on: scikit-learn's `train_test_split` with random_state=i, twice.

    >>> [len(rows) for rows in split(1000, 0)]
    [100, 100, 800]
    """
    order = torch.from_numpy(np.random.RandomState(i).permutation(n))  # as scikit-learn draws
    inside = torch.from_numpy(np.random.RandomState(i).permutation(2 * ROWS))
    both = order[n - 2 * ROWS :]
    return both[inside[ROWS:]], both[inside[:ROWS]], order[: n - 2 * ROWS]


def subsample(data: TensorData, i: int) -> list[tuple[Tensor, Tensor]]:
    """Inputs and targets to train, validate and test on: standardised by the training rows, with 0 for gaps."""
    train = data.inputs[split(len(data), i)[0]]
    mean = train.nanmean(0).nan_to_num()
    deviation = (train - mean).nan_to_num().square().mean(0).sqrt()
    # Rounding makes the deviation of a constant a little more than 0.
    constant = deviation <= 10 * torch.finfo(train.dtype).eps * mean.abs()
    deviation = torch.where(constant, torch.ones_like(deviation), deviation)
    scaled = ((data.inputs - mean) / deviation).nan_to_num().float()
    return [(scaled[rows], data.targets[rows].float()) for rows in split(len(data), i)]


def network(model: str, features: int, seed: int) -> MLP:
    """A new network, the same for the same seed."""
    torch.manual_seed(seed)
    return MLP(1, features, homogeneous=model.endswith("w/o bias"))


def gini(attributions: Tensor) -> Tensor:
    """−Gini coefficient of the mean |attribution| of a batch: `axiograd.priors.Gini` by ranks, which vmap can do."""
    mean = attributions.abs().mean(0).sort().values
    n = len(mean)
    ranks = 2 * torch.arange(1, n + 1, dtype=mean.dtype) - n - 1
    return -(mean * ranks).sum() / (n * mean.sum().clamp_min(torch.finfo(mean.dtype).tiny))


def attributions(model: str, f: Callable[[Tensor], Tensor], x: Tensor, rows: Tensor, alphas: Tensor) -> Tensor:
    """A of the module's formula for one network f, from rows to logits."""
    gradient = grad(lambda inputs: f(inputs).sum())
    if model == "X-Gradient w/o bias":
        return x * gradient(x)
    if model == "Grad":
        return gradient(x)
    if model == "RRR":
        return grad(lambda inputs: (F.logsigmoid(f(inputs)) + F.logsigmoid(-f(inputs))).sum())(x)
    difference = x - x[rows]
    points = x[rows] + alphas.unsqueeze(2) * difference
    return (difference * gradient(points.flatten(0, 1)).view_as(difference)).mean(0)


def step(model: str, weight: float, like: nn.Module) -> Callable[..., dict[str, Tensor]]:
    """The gradients of stacked networks by their stacked parameters."""

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor, rows: Tensor, alphas: Tensor) -> Tensor:
        def f(inputs: Tensor) -> Tensor:
            return functional_call(like, parameters, (inputs,)).squeeze(1)

        task = F.binary_cross_entropy_with_logits(f(x), y)
        return task + weight * gini(attributions(model, f, x, rows, alphas)) if weight else task

    return vmap(grad(loss))


def draw(generators: Sequence[torch.Generator], references: int, n: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """References of each row and where on the path, for each network, as `ExpectedGradients` draws them."""
    rows, alphas = [], []
    for generator in generators:
        rows.append(torch.stack([torch.randperm(n, generator=generator) for _ in range(references)]))
        alphas.append(torch.rand(references, n, generator=generator, dtype=torch.float64).to(dtype))
    return torch.stack(rows), torch.stack(alphas)


def train(
    networks: Sequence[nn.Module],
    data: Sequence[Sequence[tuple[Tensor, Tensor]]],
    *,
    model: str,
    weight: float,
    references: int = 1,
    generators: Sequence[torch.Generator] = (),
    epochs: int = EPOCHS,
) -> tuple[dict[str, Tensor], Tensor]:
    """Full-batch Adam on each network's own rows: the weights with the best validation ROC-AUC, stacked, and that."""
    (x, y), (x_val, y_val) = (
        [torch.stack(part) for part in zip(*rows, strict=True)] for rows in zip(*data, strict=True)
    )
    stacked, _ = stack_module_state(list(networks))
    parameters = {name: value.detach() for name, value in stacked.items()}
    gradients = step(model, weight, networks[0])
    logits = vmap(lambda one, rows: functional_call(networks[0], one, (rows,)).squeeze(1))
    # Adam works element by element, so on stacked parameters it is Adam on each network.
    optimizer = torch.optim.Adam(parameters.values(), lr=LEARNING_RATE)
    best = {name: value.clone() for name, value in parameters.items()}
    auc = torch.full((len(networks),), -1.0, dtype=torch.float64)
    for _ in range(epochs):
        drawn = draw(generators or [torch.Generator() for _ in networks], references, x.shape[1], x.dtype)
        for name, found in gradients(parameters, x, y, *drawn).items():
            parameters[name].grad = found
        optimizer.step()
        found = roc_auc(logits(parameters, x_val), y_val)
        better = found > auc
        auc[better] = found[better]
        for name, value in parameters.items():
            best[name][better] = value[better]
    return best, auc


def roc_auc(scores: Tensor, targets: Tensor) -> Tensor:
    """The share of (1, 0) pairs that are ranked right, a tie counting half, along the last axis.

    (Σ of mid-ranks of the ones − P(P + 1)/2) / (P·Q) with P ones and Q zeros.

    >>> roc_auc(torch.tensor([[0.1, 0.4, 0.4, 0.8]]), torch.tensor([[0.0, 0.0, 1.0, 1.0]]))
    tensor([0.8750], dtype=torch.float64)
    """
    ordered = scores.sort(-1).values
    below, up_to = torch.searchsorted(ordered, scores), torch.searchsorted(ordered, scores, right=True)
    ones = targets.double()
    p, q = ones.sum(-1), (1 - ones).sum(-1)
    return (((below + up_to + 1) / 2 * ones).sum(-1) - p * (p + 1) / 2) / (p * q)


@lab.remember
def measured(model: str, weight: float, references: int, numbers: tuple[int, ...], quick: bool) -> pd.DataFrame:
    """Validation and test ROC-AUC of a model on some subsamples."""
    data, lines = table(quick), []
    for start in range(0, len(numbers), AT_ONCE):
        some = numbers[start : start + AT_ONCE]
        parts = [subsample(data, i) for i in some]
        best, val = train(
            [network(model, data.inputs.shape[1], i) for i in some],
            [part[:2] for part in parts],
            model=model,
            weight=weight,
            references=references,
            generators=[torch.Generator().manual_seed(i) for i in some],
            epochs=10 if quick else EPOCHS,
        )
        for place, (i, (_, _, (x, y))) in enumerate(zip(some, parts, strict=True)):
            like = network(model, x.shape[1], i)
            with torch.no_grad():
                scores = functional_call(like, {name: value[place] for name, value in best.items()}, (x,)).squeeze(1)
            test = float(roc_auc(scores, y))
            lines.append({"model": model, "λ": weight, "references": references, "subsample": i, "test": test})
            lines[-1]["val"] = float(val[place])
    return pd.DataFrame(lines)


def searched(model: str, numbers: tuple[int, ...], quick: bool) -> pd.DataFrame:
    """Every λ of the grid on all subsamples."""
    weights = (0.0,) if model.startswith("Unreg") else GRID
    return pd.concat([measured(model, weight, 1, numbers, quick) for weight in weights])


def chosen(found: pd.DataFrame, model: str, references: int = 1) -> pd.Series:
    """Test ROC-AUC by subsample, with the λ that is best on the validation rows with one reference."""
    searched = found[(found["model"] == model) & (found["references"] == 1)]
    weight = searched.groupby("λ")["val"].mean().idxmax()
    rows = found[(found["model"] == model) & (found["λ"] == weight) & (found["references"] == references)]
    return rows.set_index("subsample")["test"].rename(weight)


def paired(ours: pd.Series, theirs: pd.Series) -> tuple[float, float]:
    """The mean difference on the subsamples that both have, and its standard error."""
    return lab.mean((ours - theirs).dropna())
