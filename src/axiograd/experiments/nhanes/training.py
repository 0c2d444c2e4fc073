"""Training the networks of Figure 1 many at a time.

The tests have what it must equal: one network at a time, with `AttributionLoss`, `torch.optim.Adam` and a loop.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from axiograd.datasets import TensorData
from axiograd.errors import InputError, NotFiniteError
from axiograd.experiments.loop import PriorOn
from axiograd.experiments.nhanes.data import Subsamples, held_out, subsamples
from axiograd.experiments.nhanes.networks import METHODS, Draws, Networks, gradients
from axiograd.models import MLP


def roc_auc(scores: Tensor, targets: Tensor) -> Tensor:
    """The share of (1, 0) pairs that are ranked right, a tie counting half, along the last axis; float64.

    (Σ of mid-ranks of the ones − P(P + 1)/2) / (P·Q) with P ones and Q zeros.

    >>> roc_auc(torch.tensor([[0.1, 0.4, 0.4, 0.8]]), torch.tensor([[0.0, 0.0, 1.0, 1.0]]))
    tensor([0.8750], dtype=torch.float64)
    """
    if not scores.isfinite().all():
        raise NotFiniteError("some of the scores are not finite: a network diverged, so it has no ROC-AUC.")
    ordered = scores.sort(-1).values
    below = torch.searchsorted(ordered, scores)
    up_to = torch.searchsorted(ordered, scores, right=True)
    ranks = (below + up_to + 1).double() / 2
    ones = targets.double()
    n_ones, n_zeros = ones.sum(-1), (1 - ones).sum(-1)
    if not (n_ones * n_zeros).all():
        raise InputError("targets of one class only: ROC-AUC needs zeros and ones.")
    return ((ranks * ones).sum(-1) - n_ones * (n_ones + 1) / 2) / (n_ones * n_zeros)


EPOCHS = 100
LEARNING_RATE = 1e-3
#: Models at a time: the parameters and Adam's two moments of more would leave the cache.
AT_ONCE = 4
#: Test rows of one product.
TEST_ROWS = 1024


@dataclass(frozen=True)
class Trained:
    """Of each model: the weights with the best validation ROC-AUC, that ROC-AUC, and the epoch (from 1) it was at."""

    networks: Networks
    val: Tensor
    epoch: Tensor


def initial(method: PriorOn, features: int, seed: int) -> MLP:
    """A new network, the same for the same seed; the global random state stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MLP(1, features, homogeneous=method.homogeneous)


def generator(seed: int) -> torch.Generator:
    """For the draws of EG."""
    return torch.Generator().manual_seed(seed)


def train(
    networks: Networks,
    data: Subsamples,
    *,
    method: PriorOn,
    weight: float = 0.0,
    references: int = 1,
    generators: Sequence[torch.Generator] = (),
    epochs: int = EPOCHS,
) -> Trained:
    """Full-batch Adam on every network's own subsample; `networks` are changed in place."""
    step = networks.copy()
    parameters = [p.requires_grad_() for p in networks.parameters]
    for parameter, gradient in zip(parameters, step.parameters, strict=True):
        parameter.grad = gradient
    # Adam works element by element, so on stacked parameters it is Adam on each model.
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=True)
    best = step.copy()
    val = torch.full((len(data),), -1.0, dtype=torch.float64)
    at = torch.zeros(len(data), dtype=torch.int64)
    n, is_eg = data.train.shape[1], method.attribution == "expected-gradients"
    with torch.no_grad():
        for epoch in range(1, epochs + 1):
            draws = Draws.draw(generators, references, n, data.train.dtype) if is_eg else None
            gradients(networks, step, data.train, data.train_targets, method=method, weight=weight, draws=draws)
            optimizer.step()
            found = roc_auc(networks.run(data.val)[-1].squeeze(2), data.val_targets)
            better = (found > val).nonzero().squeeze(1)
            val[better], at[better] = found[better], epoch
            for kept, parameter in zip(best.parameters, networks.parameters, strict=True):
                kept.index_copy_(0, better, parameter.index_select(0, better))
    for parameter in parameters:
        parameter.requires_grad_(False).grad = None
    return Trained(best, val, at)


def evaluate(networks: Networks, place: int, data: TensorData, number: int) -> float:
    """ROC-AUC of the network at this place on all rows that its subsample leaves out."""
    x, targets = held_out(data, number)
    one = networks.select(place)
    scores = [one.run(rows.unsqueeze(0))[-1].flatten() for rows in x.split(TEST_ROWS)]
    return float(roc_auc(torch.cat(scores), targets))


def measure(
    data: TensorData,
    numbers: Sequence[int],
    *,
    name: str,
    weight: float,
    references: int = 1,
    seed: int = 0,
    epochs: int = EPOCHS,
    at_once: int = AT_ONCE,
) -> dict[str, Any]:
    """Validation and test ROC-AUC of one model on some subsamples, the epochs kept, and the processor time."""
    start = time.process_time()
    method = METHODS[name]
    values: dict[str, Any] = {"val": [], "test": [], "epoch": []}
    for i in range(0, len(numbers), at_once):
        some = numbers[i : i + at_once]
        # Each subsample has a network of its own, the same for every method.
        seeds = [seed * 1_000_003 + number for number in some]
        trained = train(
            Networks.stack([initial(method, data.inputs.shape[1], s) for s in seeds]),
            subsamples(data, some),
            method=method,
            weight=weight,
            references=references,
            generators=[generator(s) for s in seeds],
            epochs=epochs,
        )
        values["val"] += [round(v, 6) for v in trained.val.tolist()]
        values["epoch"] += trained.epoch.tolist()
        values["test"] += [round(evaluate(trained.networks, j, data, n), 6) for j, n in enumerate(some)]
    return values | {"seconds": round(time.process_time() - start, 2)}
