"""What a training step minimises: a task loss alone, or a loss with an attribution prior."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from axiograd.errors import ConfigurationError, NotFiniteError
from axiograd.training.batches import Batch
from axiograd.training.mixup import MixedTarget, MixedTask


class Objective(ABC):
    """Anything that `fit` can minimise: called with the model it returns terms; `.total` is minimised.

    Every attribute of the terms that is a scalar tensor is watched, logged and shown under its name.
    """

    #: L(outputs, target) without the prior, for validation
    task_loss: Callable[[Any, Any], Tensor]

    @abstractmethod
    def __call__(self, model: Callable[..., Any], inputs: Any, target: Any, **arguments: Any) -> Any:
        """The terms of one batch."""


@dataclass(frozen=True)
class TaskTerms:
    """The one term of a task loss, and the model's outputs."""

    total: Tensor
    outputs: Any


class TaskLoss(Objective):
    """A task loss L(outputs, target) as an objective without a prior.

    >>> objective = TaskLoss(torch.nn.functional.mse_loss)
    >>> objective(torch.nn.Identity(), torch.ones(2), torch.zeros(2)).total
    tensor(1.)
    """

    def __init__(self, task_loss: Callable[[Any, Any], Tensor]) -> None:
        self.task_loss = MixedTask(task_loss)

    def __call__(self, model: Callable[..., Any], inputs: Any, target: Any, **arguments: Any) -> TaskTerms:
        if arguments:
            raise ConfigurationError(
                f"the data set gives arguments for a prior ({', '.join(arguments)}), but the loss has none; "
                "use an AttributionLoss, or leave them out of the data"
            )
        outputs = call_model(model, inputs)
        return TaskTerms(self.task_loss(outputs, target), outputs)


def ensure_objective(loss: Any) -> Objective:
    """An objective as it is; a task loss L(outputs, target) as a `TaskLoss`."""
    if isinstance(loss, Objective):
        return loss
    if not callable(loss):
        raise ConfigurationError(
            f"loss is {type(loss).__name__}; it must be an AttributionLoss or L(outputs, target)"
        )
    return TaskLoss(loss)


def call_model(model: Callable[..., Any], inputs: Any) -> Any:
    """One tensor, a tuple of positional inputs, or a mapping of keyword inputs."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def scalar_terms(terms: Any) -> dict[str, Tensor]:
    """The terms that are one number each, by name, detached.

    >>> scalar_terms(TaskTerms(torch.tensor(2.0), torch.zeros(3)))
    {'total': tensor(2.)}
    """
    found = vars(terms).items()
    return {name: value.detach() for name, value in found if isinstance(value, Tensor) and value.ndim == 0}


def not_finite(
    values: Mapping[str, float], batch: Batch, terms: Any, task_loss: Callable[[Any, Any], Tensor], where: str
) -> NotFiniteError:
    """The error that names the term, the step and the samples that a NaN or Inf comes from."""
    bad = {name: value for name, value in values.items() if not math.isfinite(value)}
    named = ", ".join(f"{name} = {value}" for name, value in bad.items()) or "a loss on another rank"
    culprits = [index for row, index in enumerate(batch.indices) if _row_is_bad(row, batch, terms, task_loss)]
    if culprits:
        samples = f"from sample {_few(culprits)} of the data set"
    else:
        samples = f"no single sample alone; the batch is {_few(list(batch.indices))}"
    return NotFiniteError(
        f"{where}: {named} ({samples}). The weights were not updated and the last good checkpoint "
        "stays; look at these samples, or use a smaller learning rate, gradient clipping, or a higher precision"
    )


def _row_is_bad(row: int, batch: Batch, terms: Any, task_loss: Callable[[Any, Any], Tensor]) -> bool:
    outputs = getattr(terms, "outputs", None)
    seen = (batch.inputs, batch.target, batch.arguments, outputs, getattr(terms, "attributions", None))
    if any(not bool(tensor[row].isfinite().all()) for part in seen for tensor in _tensors(part, len(batch))):
        return True
    target = batch.target
    if not (isinstance(outputs, Tensor) and isinstance(target, Tensor) and len(outputs) == len(target)):
        return False
    with torch.no_grad():
        return not bool(task_loss(outputs[row : row + 1], target[row : row + 1]).isfinite().all())


def _tensors(value: Any, n: int) -> list[Tensor]:
    """The floating-point tensors with one row per sample, wherever they are."""
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() and value.ndim > 0 and len(value) == n else []
    if isinstance(value, MixedTarget):
        return _tensors(value.first, n)
    if isinstance(value, Mapping):
        return [tensor for part in value.values() for tensor in _tensors(part, n)]
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in _tensors(part, n)]
    return []


def _few(indices: list[int], limit: int = 10) -> str:
    shown = ", ".join(map(str, sorted(indices)[:limit]))
    return shown if len(indices) <= limit else f"{shown} and {len(indices) - limit} more"
