"""What a training step minimises: a task loss alone, or a loss with an attribution prior."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from axiograd.errors import ConfigurationError
from axiograd.training.compiled import CompiledStep
from axiograd.training.loss import AttributionLoss, LossTerms
from axiograd.training.mixup import MixedTarget, task_value


class Objective(ABC):
    """Anything that `fit` can minimise: called with the model it returns terms; `.total` is minimised.

    Every attribute of the terms that is a scalar tensor is watched, logged and shown under its name.
    """

    #: L(outputs, target) without the prior, for validation
    task_loss: Callable[[Any, Any], Tensor]

    @abstractmethod
    def __call__(self, model: Callable[..., Any], inputs: Any, target: Any, **arguments: Any) -> Any:
        """The terms of one batch; with mixup the target is a `MixedTarget`."""

    def identity(self) -> dict[str, str]:
        """What must be the same for a checkpoint to belong to this objective."""
        return {"task_loss": _named(self.task_loss)}

    def backward(self, fabric: Any, terms: Any) -> None:
        """Add the gradient of the total to the parameters'."""
        fabric.backward(terms.total)

    def to(self, device: torch.device) -> None:  # noqa: B027 - most have nothing to move
        """Go to the device that the model is on."""

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint must hold so that the objective goes on as if it had not stopped."""
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
        if arguments:
            raise ConfigurationError(
                f"the data set gives arguments for a prior ({', '.join(arguments)}), but the loss has none; "
                "use an AttributionLoss, or leave them out of the data"
            )
        outputs = call_model(model, inputs)
        return TaskTerms(task_value(self.task_loss, outputs, target), outputs)


class WithPrior(Objective):
    """An `AttributionLoss` as an objective.

    A mixed sample has the task loss share·L(first) + (1 − share)·L(second), and where the true class is what is
    attributed, the same mixture of both classes is.
    """

    def __init__(self, loss: AttributionLoss) -> None:
        self.loss, self.task_loss = loss, loss.task_loss

    def __call__(self, model: Callable[..., Any], inputs: Any, target: Any, **arguments: Any) -> LossTerms:
        terms: LossTerms = self.loss(model, inputs, target, **arguments)
        return terms

    def identity(self) -> dict[str, str]:
        """The prior, its weight over time, the method, and the outputs it looks at."""
        loss = self.loss
        parts = {"prior": loss.prior, "weight": loss.schedule, "method": loss.method, "outputs": loss.outputs}
        return super().identity() | {name: _named(part) for name, part in parts.items()}

    def to(self, device: torch.device) -> None:
        """Move the prior's buffers."""
        self.loss.to(device)

    def tensors(self) -> dict[str, Tensor]:
        """The step that the schedule counts by, the generator, the prior's buffers."""
        return {name: value.detach().cpu().clone() for name, value in self.loss.state_dict().items()}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on from there."""
        self.loss.load_state_dict(tensors)


class CompiledPrior(WithPrior):
    """An `AttributionLoss` whose whole step, attribution and gradients, is one compiled function."""

    def __init__(self, loss: AttributionLoss) -> None:
        super().__init__(loss)
        self._step: CompiledStep | None = None

    def __call__(self, model: Callable[..., Any], inputs: Any, target: Any, **arguments: Any) -> LossTerms:
        if isinstance(target, MixedTarget):
            raise ConfigurationError("mixup is not part of the compiled step; set mixup = 0 or compiled=False")
        if self._step is None or self._step.model is not model:
            if not isinstance(model, nn.Module):
                raise ConfigurationError(f"a {type(model).__name__} cannot be compiled; it must be an nn.Module")
            self._step = CompiledStep(self.loss, model)
        return self._step(inputs, target, **arguments)

    def backward(self, fabric: Any, terms: Any) -> None:
        """Nothing is left to do: the compiled step has the gradients."""


def ensure_objective(loss: Any, *, compiled: bool = False) -> Objective:
    """An objective as it is, an `AttributionLoss` or a task loss L(outputs, target) as one."""
    if isinstance(loss, AttributionLoss):
        return CompiledPrior(loss) if compiled else WithPrior(loss)
    if compiled:
        raise ConfigurationError("compiled=True is for an AttributionLoss; for a task loss, torch.compile the model")
    if isinstance(loss, Objective):
        return loss
    if not callable(loss):
        raise ConfigurationError(f"loss is {type(loss).__name__}; it must be an AttributionLoss or L(outputs, target)")
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


def _named(part: Any) -> str:
    """A name that is the same in the next process, as an address in memory is not."""
    if isinstance(part, nn.Module | str | int | float | None) or is_dataclass(part):
        return repr(part)
    return str(getattr(part, "__qualname__", type(part).__qualname__))
