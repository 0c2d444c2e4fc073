"""What a training step minimises, a task loss alone or one with a prior; and who is to blame for a NaN in it."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from axiograd._io import settings_of
from axiograd.attribution import Attribution
from axiograd.errors import ConfigurationError, NotFiniteError
from axiograd.priors import Prior
from axiograd.training.batches import Batch
from axiograd.training.loss import AttributionLoss, LossTerms
from axiograd.training.mixup import MixedTarget, task_value

#: The argument of a batch that says how much each of its samples counts in the task loss.
SAMPLE_WEIGHT = "sample_weight"
#: Samples that an error names.
_FEW = 10


def weighted(task_loss: Callable[..., Tensor], weights: Tensor | None) -> Callable[[Any, Any], Tensor]:
    """The mean of w·L over samples; with weights that are 1 on average over the data, what is minimised is Σ w·L / Σ w.

    >>> loss = weighted(torch.nn.functional.mse_loss, torch.tensor([0.0, 2.0]))
    >>> loss(torch.tensor([[1.0], [3.0]]), torch.zeros(2, 1))
    tensor(9.)
    """
    if weights is None:
        return task_loss

    def loss(outputs: Any, target: Any) -> Tensor:
        return (each_loss(task_loss, outputs, target).reshape(len(weights), -1).mean(1) * weights).mean()

    return loss


def each_loss(task_loss: Callable[..., Tensor], outputs: Any, target: Any) -> Tensor:
    """The loss of each sample, by `reduction="none"`.

    >>> each_loss(torch.nn.functional.l1_loss, torch.tensor([1.0, 3.0]), torch.zeros(2))
    tensor([1., 3.])
    """
    try:
        return task_loss(outputs, target, reduction="none")
    except TypeError as error:
        raise ConfigurationError(
            f"weights of samples need a task loss with reduction='none', like those of torch.nn.functional: {error}."
        ) from error


class Objective(ABC):
    """Anything that `fit` can minimise: called with the model it returns terms; `.total` is minimised.

    Every attribute of the terms that is a scalar tensor is watched, logged and shown under its name.
    """

    #: L(outputs, target) without the prior, for validation
    task_loss: Callable[[Any, Any], Tensor]

    @abstractmethod
    def __call__(self, model: Callable[..., Any], inputs: Any, target: Any, **arguments: Any) -> Any:
        """The terms of one batch; with mixup the target is a `MixedTarget`."""

    def identity(self) -> dict[str, Any]:
        """What must be the same for a checkpoint to belong to this objective: by default all public attributes."""
        held = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return {"objective": type(self).__name__, **settings_of(held)}

    def backward(self, fabric: Any, terms: Any) -> None:
        """Add the gradient of the total to the parameters'."""
        fabric.backward(terms.total)

    def weighed(self, terms: Any, weight: float) -> Any:
        """The terms multiplied by how much these samples count among those of the step."""
        changed = copy.copy(terms)
        for name, value in vars(terms).items():
            if isinstance(value, Tensor) and value.ndim == 0:
                object.__setattr__(changed, name, weight * value)  # terms may be frozen
        return changed

    def same_step(self) -> None:  # noqa: B027 - most do not count
        """The next call belongs to the same step as the last one."""

    def to(self, device: torch.device) -> None:  # noqa: B027 - most have nothing to move
        """Go to the device that the model is on."""

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint must hold so that the objective resumes as if it had not stopped."""
        return {}

    def load(self, tensors: dict[str, Tensor]) -> None:  # noqa: B027 - most have nothing to load
        """Take up what `tensors` gave."""


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
        self.task_loss = task_loss

    def __call__(self, model: Callable[..., Any], inputs: Any, target: Any, **arguments: Any) -> TaskTerms:
        weights = arguments.pop(SAMPLE_WEIGHT, None)
        if arguments:
            raise ConfigurationError(
                f"the data set gives arguments for a prior ({', '.join(arguments)}), but the loss has none; "
                "use an AttributionLoss, or leave them out of the data."
            )
        outputs = call_model(model, inputs)
        return TaskTerms(task_value(weighted(self.task_loss, weights), outputs, target), outputs)


class WithPrior(Objective):
    """An `AttributionLoss` as an objective.

    A mixed sample has the task loss share·L(first) + (1 − share)·L(second), and where the true class is what is
    attributed, the same mixture of both classes is.
    """

    def __init__(self, loss: AttributionLoss) -> None:
        self.loss, self.task_loss = loss, loss.task_loss

    def __call__(self, model: Callable[..., Any], inputs: Any, target: Any, **arguments: Any) -> LossTerms:
        weights = arguments.pop(SAMPLE_WEIGHT, None)
        self.loss.task_loss = weighted(self.task_loss, weights)
        try:
            terms: LossTerms = self.loss(model, inputs, target, **arguments)
        finally:
            self.loss.task_loss = self.task_loss
        return terms

    def weighed(self, terms: Any, weight: float) -> Any:
        """Priors of ours have been weighed where they are computed: those on the batch mean count otherwise."""
        task = weight * terms.task
        prior = terms.prior if isinstance(self.loss.prior, Prior) else weight * terms.prior
        # A held step has seen the weight, and has the gradient of that total.
        total = terms.total if self.loss.total_only else task + terms.weight * prior
        return replace(terms, task=task, prior=prior, total=total)

    def same_step(self) -> None:
        """A schedule counts steps of the optimizer."""
        self.loss.step -= 1

    def identity(self) -> dict[str, Any]:
        """The task loss, the prior with its buffers, its weight over time, the method, the outputs it looks at."""
        loss, method = self.loss, self.loss.method
        own = vars(method) if isinstance(method, Attribution) else {}
        found: dict[str, Any] = settings_of(
            {
                "task_loss": self.task_loss,
                "prior": loss.prior,
                "weight": loss.schedule,
                "method": type(method) if own else method,
                "method_arguments": loss.method_arguments
                | {name: value for name, value in own.items() if name != "model" and not name.startswith("_")},
                "outputs": loss.outputs,
                "of": loss.of,
                "generator": loss.generator,
                "double_backward": loss.double_backward,
            }
        )
        return found

    def to(self, device: torch.device) -> None:
        """Move the prior's buffers."""
        self.loss.to(device)

    def tensors(self) -> dict[str, Tensor]:
        """The step that the schedule counts by, the generator, the prior's buffers."""
        return {name: value.detach().cpu().clone() for name, value in self.loss.state_dict().items()}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Resume from there."""
        self.loss.load_state_dict(tensors)


def ensure_objective(loss: Any) -> Objective:
    """An objective as it is, an `AttributionLoss` or a task loss L(outputs, target) as one."""
    if isinstance(loss, AttributionLoss):
        return WithPrior(loss)
    if isinstance(loss, Objective):
        return loss
    if not callable(loss):
        raise ConfigurationError(f"loss is {type(loss).__name__}; it must be an AttributionLoss or L(outputs, target).")
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
        "stays; look at these samples, or use a smaller learning rate, gradient clipping, or a higher precision."
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


def _few(indices: list[int]) -> str:
    shown = ", ".join(map(str, sorted(indices)[:_FEW]))
    return shown if len(indices) <= _FEW else f"{shown} and {len(indices) - _FEW} more"
