"""Mixup (Zhang et al., 2018): train on convex combinations of samples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from axiograd.errors import ConfigurationError, TargetError
from axiograd.training.batches import Batch


@dataclass(frozen=True)
class MixedTarget:
    """Two targets per sample, of which the first has the given share.

    Called on the output it selects share·F[first] + (1 − share)·F[second], one scalar per sample, so that it is
    a target of attribution too: a mixed sample is attributed for the same mixture of its two classes.

    >>> target = MixedTarget(torch.tensor([0]), torch.tensor([2]), 0.75)
    >>> target(torch.tensor([[4.0, 0.0, 8.0]]))
    tensor([5.])
    """

    first: Tensor
    second: Tensor
    share: float

    def __call__(self, outputs: Tensor) -> Tensor:
        if outputs.numel() == len(outputs):  # one output: the mixture of it with itself
            return outputs.flatten()
        if outputs.ndim != 2 or self.first.is_floating_point():  # noqa: PLR2004 - [batch, class]
            raise TargetError(
                f"mixup: {self.first.dtype} targets do not select outputs of shape {tuple(outputs.shape)}."
            )
        first = outputs.gather(1, self.first[:, None])[:, 0]
        second = outputs.gather(1, self.second[:, None])[:, 0]
        return self.share * first + (1.0 - self.share) * second

    @property
    def device(self) -> torch.device:
        """Where the targets are."""
        return self.first.device

    def loss(self, task_loss: Callable[[Any, Any], Tensor], outputs: Any) -> Tensor:
        """share·L(F, first) + (1 − share)·L(F, second)."""
        first, second = task_loss(outputs, self.first), task_loss(outputs, self.second)
        return self.share * first + (1.0 - self.share) * second


def task_value(task_loss: Callable[[Any, Any], Tensor], outputs: Any, target: Any) -> Tensor:
    """L(outputs, target), for a mixed target the mixture of both losses."""
    return target.loss(task_loss, outputs) if isinstance(target, MixedTarget) else task_loss(outputs, target)


def mixup(batch: Batch, alpha: float, seed: int) -> Batch:
    """x ← m·x + (1 − m)·x′ with m ~ Beta(α, α) and x′ another sample of the batch; both labels are kept.

    >>> batch = Batch(torch.eye(2), torch.tensor([0, 1]), indices=(0, 1))
    >>> mixed = mixup(batch, 0.7, seed=1)
    >>> torch.allclose(mixed.inputs.sum(1), torch.ones(2)), mixed.target.first
    (True, tensor([0, 1]))
    """
    if batch.arguments:
        raise ConfigurationError(
            f"mixup and prior arguments per sample ({', '.join(batch.arguments)}) do not go together: "
            "a mask or box belongs to one image, not to a mixture of two; set mixup = 0."
        )
    if not isinstance(batch.target, Tensor):
        raise ConfigurationError(f"mixup needs a tensor of targets, not {type(batch.target).__name__}.")
    rng = np.random.default_rng(seed)
    share = float(rng.beta(alpha, alpha))
    other = torch.as_tensor(rng.permutation(len(batch)), device=batch.target.device)
    mixed = _mix(batch.inputs, other, share)
    return replace(batch, inputs=mixed, target=MixedTarget(batch.target, batch.target[other], share))


def _mix(inputs: Any, other: Tensor, share: float) -> Any:
    if isinstance(inputs, Tensor):
        if not inputs.is_floating_point():
            raise ConfigurationError(f"mixup cannot mix {inputs.dtype} inputs; set mixup = 0.")
        return share * inputs + (1.0 - share) * inputs[other]
    if isinstance(inputs, Mapping):
        return {name: _mix(value, other, share) for name, value in inputs.items()}
    return tuple(_mix(value, other, share) for value in inputs)
