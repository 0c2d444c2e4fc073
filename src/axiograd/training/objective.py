"""What a training step minimises: anything that makes a total of a model and a batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from axiograd.errors import ConfigurationError


class Objective(nn.Module):
    """Anything that `fit` can minimise: called with the model and a batch it returns terms; `.total` is minimised.

    Every attribute of the terms that is a scalar tensor is logged under its name.

    >>> import torch
    >>> class Doubled(Objective):
    ...     def forward(self, model, inputs, target):
    ...         outputs = model(inputs)
    ...         return TaskTerms(2 * nn.functional.mse_loss(outputs, target), outputs)
    >>> Doubled()(nn.Identity(), torch.ones(2), torch.zeros(2)).total
    tensor(2.)
    """

    #: L(outputs, target) without the prior, for validation.
    task_loss: Callable[..., Tensor]

    def forward(self, model: Callable[..., Any], inputs: Any, target: Any, **arguments: Any) -> Any:
        """The terms of one batch."""
        raise NotImplementedError

    def validation_target(self, inputs: Any, target: Any) -> Any:  # noqa: ARG002 - a teacher's depends on them
        """What validation compares the model's outputs with."""
        return target


@dataclass(frozen=True)
class TaskTerms:
    """The one term of a task loss, and the model's outputs."""

    total: Tensor
    outputs: Any


class TaskLoss(Objective):
    """A task loss L(outputs, target) as an objective without a prior.

    >>> import torch
    >>> objective = TaskLoss(torch.nn.functional.mse_loss)
    >>> objective(torch.nn.Identity(), torch.ones(2), torch.zeros(2)).total
    tensor(1.)
    """

    def __init__(self, task_loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.task_loss = task_loss

    def forward(self, model: Callable[..., Any], inputs: Any, target: Any, **arguments: Any) -> TaskTerms:
        """The task loss of one batch."""
        if arguments:
            raise ConfigurationError(
                f"the data set gives arguments for a prior ({', '.join(arguments)}), but the loss has none; "
                "use an AttributionLoss, or leave them out of the data."
            )
        outputs = call_model(model, inputs)
        return TaskTerms(self.task_loss(outputs, target), outputs)


def ensure_objective(loss: Any) -> Objective:
    """An objective as it is, a task loss L(outputs, target) as one."""
    if isinstance(loss, Objective):
        return loss
    if not callable(loss):
        raise ConfigurationError(f"loss is {loss!r}; it must be an AttributionLoss, or a task loss L(outputs, target).")
    return TaskLoss(loss)


def call_model(model: Callable[..., Any], inputs: Any) -> Any:
    """One tensor, a tuple of positional inputs, or a mapping of keyword inputs."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def weighted(task_loss: Callable[..., Tensor], weights: Tensor | None) -> Callable[..., Tensor]:
    """The mean of w·L over samples; with weights that are 1 on average over the data, what is minimised is Σ w·L / Σ w.

    >>> import torch
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

    >>> import torch
    >>> each_loss(torch.nn.functional.l1_loss, torch.tensor([1.0, 3.0]), torch.zeros(2))
    tensor([1., 3.])
    """
    try:
        return task_loss(outputs, target, reduction="none")
    except TypeError as error:
        raise ConfigurationError(
            f"weights of samples need a task loss with reduction='none', like those of torch.nn.functional: {error}."
        ) from error
