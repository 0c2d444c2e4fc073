"""The task loss of one batch, and its gradient by the outputs, each computed once for the same outputs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from axiograd.errors import ConfigurationError
from axiograd.training.mixup import task_value


class Task:
    """L(outputs, target) as a function of the outputs.

    >>> task = Task(torch.nn.functional.mse_loss, torch.tensor([1.0]))
    >>> outputs = torch.tensor([3.0], requires_grad=True)
    >>> task(outputs), task.gradient(outputs, outputs)
    (tensor(4., grad_fn=<MseLossBackward0>), tensor([4.]))
    """

    def __init__(self, task_loss: Callable[[Any, Any], Tensor], target: Any) -> None:
        self._task_loss, self._target = task_loss, target
        self._known: tuple[Any, Tensor] | None = None
        self._gradient: tuple[Tensor, Tensor | None] | None = None

    def __call__(self, outputs: Any) -> Tensor:
        if self._known is None or self._known[0] is not outputs:
            value: Any = task_value(self._task_loss, outputs, self._target)
            if not isinstance(value, Tensor) or value.ndim > 0:
                what = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                raise ConfigurationError(f"the task loss must be a scalar (take its mean), got {what}.")
            self._known = outputs, value
        return self._known[1]

    def gradient(self, outputs: Any, tensor: Tensor) -> Tensor | None:
        """r = ∂L/∂F, by one tensor of the outputs; None if the loss does not depend on it."""
        if self._gradient is None or self._gradient[0] is not tensor:
            (r,) = torch.autograd.grad(self(outputs), [tensor], retain_graph=True, allow_unused=True)
            self._gradient = tensor, r
        return self._gradient[1]
