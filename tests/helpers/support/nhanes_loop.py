"""The networks of Figure 1 trained one at a time, as a user would: `AttributionLoss`, `torch.optim.Adam` and a loop."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from axiograd.experiments.loop import PriorOn
from axiograd.experiments.nhanes.training import LEARNING_RATE, roc_auc
from axiograd.models import MLP
from axiograd.priors import Gini


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
    method: PriorOn, weight: float, x: Tensor, references: int, generator: torch.Generator | None
) -> Callable[[MLP, Tensor, Tensor], Tensor]:
    """The loss of a batch, with the method's prior."""
    loss = replace(method, steps=references).loss(Gini(), weight, x, task=task_loss, generator=generator)
    if loss is None:
        return lambda model, inputs, targets: task_loss(model(inputs), targets)
    return lambda model, inputs, targets: loss(model, inputs, targets).total


def train_one(
    model: MLP,
    x: Tensor,
    targets: Tensor,
    x_val: Tensor,
    val_targets: Tensor,
    *,
    method: PriorOn,
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
