"""Outputs of a model on a whole data set, on one rank or many, and the number by which weights are judged."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import Subset

from axiograd._state import in_mode
from axiograd.errors import ConfigurationError
from axiograd.training.batches import Order, WithArguments, loader
from axiograd.training.objective import SAMPLE_WEIGHT, call_model, weighted

Metric = Literal["loss", "accuracy"] | Callable[[Tensor, Tensor], float]


def predict(fabric: Any, model: nn.Module, data: Any, *, batch_size: int, collate: Any = None) -> tuple[Tensor, Tensor]:
    """The model's outputs and the targets of all samples, in the data set's order, the same on every rank."""
    n, rank, world_size = len(data), fabric.global_rank, fabric.world_size
    mine = data if world_size == 1 else Subset(data, range(rank, n, world_size))
    order = Order(len(mine), max(1, batch_size // world_size), shuffle=False)
    outputs, targets = [], []
    with in_mode(model, training=False), torch.no_grad():
        for batch in loader(mine, order, collate=collate):
            inputs = fabric.strategy.precision.convert_input(fabric.to_device(batch.inputs))
            with fabric.autocast():
                outputs.append(call_model(model, inputs).cpu())
            targets.append(torch.as_tensor(batch.target).cpu())
    return _gathered(fabric, torch.cat(outputs), n), _gathered(fabric, torch.cat(targets), n)


def sample_weights(data: Any) -> Tensor | None:
    """How much each sample counts, in the data set's order; None where all count alike."""
    if isinstance(data, WithArguments):
        return data.columns.get(data.names.get(SAMPLE_WEIGHT, ""))
    found = getattr(data, "weights", None)
    return found if isinstance(found, Tensor) and found.shape == (len(data),) else None


def score(
    metric: Metric,
    task_loss: Callable[[Any, Any], Tensor],
    outputs: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
) -> float:
    """The metric as a number of which more is better (so the loss comes negated); a mean that samples' weights enter.

    >>> outputs, targets = torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 0])
    >>> score("accuracy", torch.nn.functional.cross_entropy, outputs, targets)
    0.5
    >>> score("accuracy", torch.nn.functional.cross_entropy, outputs, targets, torch.tensor([3.0, 1.0]))
    0.75
    """
    if weights is not None:
        if not weights.sum() > 0:
            raise ConfigurationError("the weights of all validation samples are zero: none of them counts.")
        weights = weights.double().cpu() / weights.double().mean().cpu()
    if callable(metric):
        return float(metric(outputs, targets))
    if metric == "loss":
        return -float(weighted(task_loss, weights)(outputs, targets))
    if metric != "accuracy":
        raise ConfigurationError(f"metric is {metric!r}; it must be 'loss', 'accuracy' or a callable.")
    if targets.shape == outputs.shape and targets.is_floating_point():  # a teacher's outputs: agreement
        targets = targets.argmax(1)
    if targets.is_floating_point() or targets.ndim != 1:
        raise ConfigurationError(
            f"accuracy needs one class index per sample, not {targets.dtype} of shape {tuple(targets.shape)}; "
            "give a callable (outputs, targets) -> float."
        )
    right = (outputs.argmax(1) == targets).double()
    return float((right if weights is None else right * weights).mean())


def _gathered(fabric: Any, mine: Tensor, n: int) -> Tensor:
    """Rank r holds samples r, r + world_size, …; put all of them back in order."""
    if fabric.world_size == 1:
        return mine
    rows = -(-n // fabric.world_size)
    padded = torch.cat([mine, mine[-1:].expand(rows - len(mine), *mine.shape[1:])])
    gathered: Tensor = fabric.all_gather(padded.to(fabric.device)).cpu()
    return gathered.transpose(0, 1).flatten(0, 1)[:n]
