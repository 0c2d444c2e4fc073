"""The loop behind the small trainings: Adam with a one-cycle schedule on data that fit in memory."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from axiograd.datasets import TensorData

#: The loss of a batch, from the tensors of `TensorData.batches`.
BatchLoss = Callable[..., Tensor]
#: A batch changed at random.
Augment = Callable[..., tuple[Tensor, ...]]


def train_epochs(
    model: nn.Module,
    data: TensorData,
    loss: BatchLoss,
    *,
    epochs: int,
    batch: int,
    learning_rate: float,
    seed: int,
    augment: Augment | None = None,
    weight_decay: float = 0.0,
) -> list[float]:
    """Train, and return the processor seconds of each epoch: what other programs do does not count.

    >>> data = TensorData(torch.eye(4), torch.tensor([0, 1, 0, 1]), "four")
    >>> model = nn.Linear(4, 2, bias=False)
    >>> step = lambda x, y: nn.functional.cross_entropy(model(x), y)
    >>> before = step(data.inputs, data.targets)
    >>> _ = train_epochs(model, data, step, epochs=5, batch=2, learning_rate=0.1, seed=0)
    >>> bool(step(data.inputs, data.targets) < before)
    True
    """
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=weight_decay)
    total = epochs * -(-len(data) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=total)
    seconds = []
    for epoch in range(epochs):
        start = time.process_time()
        for tensors in data.batches(batch, seed=seed * 1000 + epoch):
            objective = loss(*(tensors if augment is None else augment(*tensors)))
            optimizer.zero_grad()
            objective.backward()
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
