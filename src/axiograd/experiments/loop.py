"""The small trainings: whose attributions a prior sees, and a one-cycle schedule on data that fit in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axiograd.attribution.methods import find_method
from axiograd.datasets import TensorData
from axiograd.training.loss import AttributionLoss
from axiograd.training.targets import Outputs

#: The loss of a batch, from the tensors of `TensorData.batches`.
BatchLoss = Callable[..., Tensor]
#: A batch changed at random.
Augment = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True)
class PriorOn:
    """A row of a table: which network is trained, and whose attributions its prior sees."""

    label: str
    #: The name of an attribution method, and how many gradients it takes where there is a choice.
    attribution: str | None = None
    homogeneous: bool = False
    outputs: Outputs = "target"
    steps: int = 1

    def loss(
        self,
        prior: Callable[..., Tensor],
        weight: float,
        references: Tensor,
        *,
        task: Callable[..., Tensor] = F.cross_entropy,
        generator: torch.Generator | None = None,
    ) -> AttributionLoss | None:
        """The task with the prior, or None without any; references are for methods that draw some."""
        if self.attribution is None:
            return None
        entry = find_method(self.attribution)
        given: dict[str, Any] = {} if entry.count is None else {entry.count: self.steps}
        if entry.needs_references:
            given |= {"references": references, "generator": generator}
        return AttributionLoss(task, prior, weight, entry.method, outputs=self.outputs, **given)


def batch_loss(model: nn.Module, loss: AttributionLoss | None = None, argument: str = "mask") -> BatchLoss:
    """Cross-entropy, or a loss whose prior is given the last tensor of a batch by this name."""

    def of_batch(x: Tensor, y: Tensor, *marked: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y) if loss is None else loss(model, x, y, **{argument: marked[-1]}).total

    return of_batch


def train_epochs(
    data: TensorData,
    loss: BatchLoss,
    optimizer: torch.optim.Optimizer,
    *,
    epochs: int,
    batch: int,
    seed: int,
    augment: Augment | None = None,
    clip: float | None = None,
) -> list[float]:
    """Train, and return the processor seconds of each epoch: what other programs do does not count.

    The learning rates of the optimizer are the largest of the cycle; `clip` is the largest norm of a gradient.

    >>> data = TensorData(torch.eye(4), torch.tensor([0, 1, 0, 1]), "four")
    >>> model = nn.Linear(4, 2, bias=False)
    >>> step = lambda x, y: nn.functional.cross_entropy(model(x), y)
    >>> before = step(data.inputs, data.targets)
    >>> _ = train_epochs(data, step, torch.optim.Adam(model.parameters(), 0.1), epochs=5, batch=2, seed=0)
    >>> bool(step(data.inputs, data.targets) < before)
    True
    """
    total = epochs * -(-len(data) // batch)
    largest = [group["lr"] for group in optimizer.param_groups]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, largest, total_steps=total)
    seconds = []
    for epoch in range(epochs):
        start = time.process_time()
        for tensors in data.batches(batch, seed=seed * 1000 + epoch):
            objective = loss(*(tensors if augment is None else augment(*tensors)))
            optimizer.zero_grad()
            objective.backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_((p for g in optimizer.param_groups for p in g["params"]), clip)
            optimizer.step()
            schedule.step()
        seconds.append(time.process_time() - start)
    return seconds


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorData, batch: int = 1000) -> float:
    """Per cent correct in eval mode.

    >>> data = TensorData(torch.eye(2), torch.tensor([0, 0]), "two")
    >>> accuracy(nn.Identity(), data)
    50.0
    """
    training = model.training
    model.eval()
    correct = [model(x).argmax(1) == y for x, y, *_ in data.batches(batch)]
    model.train(training)
    return 100 * float(torch.cat(correct).float().mean())
