"""Running a model to measure it: in evaluation mode, without gradients, and left as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from axiograd._calls import Model, logits
from axiograd._state import in_mode
from axiograd.errors import InputError, TargetError

_SINGLE = 1


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Evaluation mode and no gradients, also for modules in a function; every submodule gets its own mode back."""
    with in_mode(model, training=False), torch.no_grad():
        yield


def require_tensor(inputs: Any) -> Tensor:
    """The inputs, if they are one non-empty floating-point tensor of samples."""
    if not (isinstance(inputs, Tensor) and inputs.is_floating_point() and inputs.dim() > 1 and inputs.numel()):
        what = tuple(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
        raise InputError(
            f"inputs {what}: expected one floating-point tensor [batch, ...] with at least one sample. Pass everything "
            "else as additional_forward_args."
        )
    return inputs


def predictions(outputs: Any) -> Tensor:
    """The predicted class: the largest logit, or for a single logit whether it is positive.

    >>> predictions(torch.tensor([[0.1, 2.0], [3.0, 0.0]]))
    tensor([1, 0])
    >>> predictions(torch.tensor([-1.0, 2.0]))
    tensor([0, 1])
    """
    raw = logits(outputs)
    flat = raw.reshape(len(raw), -1)
    return (flat[:, 0] > 0).long() if flat.shape[1] == _SINGLE else flat.argmax(1)


def as_labels(labels: Any, batch: int, device: torch.device) -> Tensor:
    """One class per sample, from a number, a sequence or a tensor."""
    try:
        read = torch.as_tensor(labels, device=device)
    except (TypeError, ValueError, RuntimeError):
        read = torch.empty(0)
    if read.numel() not in {1, batch} or (read.is_floating_point() and not bool((read == read.round()).all())):
        raise TargetError(
            f"{read.numel()} labels for {batch} samples: accuracy needs one class for each. Give labels= (or target=) "
            "an integer or one integer per sample."
        )
    return read.reshape(-1).long().expand(batch)
