"""The same training one model at a time, in the library's ordinary words: what the batched one must equal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from axiograd.attribution import Attribution, ExpectedGradients, Gradient, LogGradient, XGradient
from axiograd.experiments.nhanes_auc import roc_auc
from axiograd.experiments.nhanes_methods import Method
from axiograd.experiments.nhanes_training import LEARNING_RATE
from axiograd.models.mlp import MLP
from axiograd.priors import Gini
from axiograd.training.loss import AttributionLoss


@dataclass(frozen=True)
class PlainTrained:
    """The weights with the best validation ROC-AUC, that ROC-AUC, and its epoch (from 1)."""

    state: dict[str, Tensor]
    val: float
    epoch: int


def task_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy on the logit."""
    return F.binary_cross_entropy_with_logits(outputs.squeeze(1), targets)


def objective(
    method: Method, weight: float, x: Tensor, references: int, generator: torch.Generator | None
) -> Callable[[MLP, Tensor, Tensor], Tensor]:
    """The loss of a batch, with the method's prior."""
    if method.attribution == "none":
        return lambda model, inputs, targets: task_loss(model(inputs), targets)
    attributions: dict[str, Callable[[MLP], Attribution]] = {
        "x-gradient": XGradient,
        "gradient": Gradient,
        "log-gradient": LogGradient,
        "expected-gradients": lambda model: ExpectedGradients(model, x, references, generator=generator),
    }
    loss = AttributionLoss(task_loss, Gini(), weight, attributions[method.attribution], outputs=None)
    return lambda model, inputs, targets: loss(model, inputs, targets).total


def train_one(
    model: MLP,
    x: Tensor,
    targets: Tensor,
    x_val: Tensor,
    val_targets: Tensor,
    *,
    method: Method,
    weight: float = 0.0,
    references: int = 1,
    generator: torch.Generator | None = None,
    epochs: int,
    auc: Callable[[Tensor, Tensor], float] = lambda scores, targets: float(roc_auc(scores, targets)),
) -> PlainTrained:
    """Full-batch Adam; the model is left with its last weights."""
    loss = objective(method, weight, x, references, generator)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    best = PlainTrained({}, -1.0, 0)
    for epoch in range(1, epochs + 1):
        optimizer.zero_grad()
        loss(model, x, targets).backward()
        optimizer.step()
        with torch.no_grad():
            found = auc(model(x_val).squeeze(1), val_targets)
        if found > best.val:
            best = PlainTrained({name: value.clone() for name, value in model.state_dict().items()}, found, epoch)
    return best
