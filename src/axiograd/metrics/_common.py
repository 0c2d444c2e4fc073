"""What metrics share: reading inputs, attributions and labels, and standard errors."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from axiograd._calls import logits
from axiograd.errors import ConfigurationError, InputError, NotFiniteError, TargetError

#: How the channels of an image become one value per pixel; "none" treats every channel as features of its own.
Channels: TypeAlias = Literal["mean", "sum", "norm", "none"]

ROW_DIMS, IMAGE_DIMS = 2, 4


def require_tensor(inputs: Any) -> Tensor:
    """The inputs, if they are one non-empty floating-point tensor of samples."""
    if not (isinstance(inputs, Tensor) and inputs.is_floating_point() and inputs.dim() > 1 and inputs.numel()):
        what = tuple(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
        raise InputError(
            f"inputs {what}: expected one floating-point tensor [batch, ...] with at least one sample. Pass everything "
            "else as additional_forward_args."
        )
    return inputs


def per_feature(attributions: Tensor, inputs: Tensor, channels: Channels) -> Tensor:
    """Signed attributions ``[batch, features]``: pixels for images, columns for rows.

    >>> per_feature(torch.tensor([[[1.0, 2.0], [3.0, -4.0]]]), torch.zeros(1, 2, 2), "mean")
    tensor([[ 2., -1.]])
    """
    if channels not in get_args(Channels):
        raise ConfigurationError(f"channels={channels!r}: expected one of {', '.join(get_args(Channels))}.")
    a = attributions.detach()
    if a.dim() == inputs.dim() - 1 and a.shape == (len(inputs), *inputs.shape[2:]):
        a = a.unsqueeze(1)
    per_pixel = inputs.dim() > ROW_DIMS and channels != "none" and a.shape == (len(inputs), 1, *inputs.shape[2:])
    if a.shape != inputs.shape and not per_pixel:
        raise InputError(
            f"attributions of shape {tuple(attributions.shape)} for inputs of shape {tuple(inputs.shape)}: expected "
            "the same shape, or one value per pixel."
        )
    require_finite(a)
    if a.dim() > ROW_DIMS and channels != "none":
        a = a.mean(1) if channels == "mean" else a.sum(1) if channels == "sum" else a.norm(dim=1)
    return a.flatten(1)


def require_finite(attributions: Tensor) -> None:
    """Name the samples whose attributions have NaN or Inf."""
    if bad := format_samples(~attributions.flatten(1).isfinite().all(1)):
        raise NotFiniteError(
            f"NaN or Inf in the attributions of sample {bad}. Attribute these samples again in float64, or leave them "
            "out."
        )


def format_samples(chosen: Tensor) -> str:
    """The first of some samples, for a message.

    >>> format_samples(torch.tensor([False, True, True]))
    '1, 2'
    """
    return ", ".join(map(str, chosen.nonzero().flatten().tolist()[:8]))


def predictions(outputs: Any) -> Tensor:
    """The predicted class: the largest logit, or for a single logit whether it is positive.

    >>> predictions(torch.tensor([[0.1, 2.0], [3.0, 0.0]]))
    tensor([1, 0])
    >>> predictions(torch.tensor([-1.0, 2.0]))
    tensor([0, 1])
    """
    raw = logits(outputs)
    flat = raw.reshape(len(raw), -1)
    return (flat[:, 0] > 0).long() if flat.shape[1] == 1 else flat.argmax(1)


def read_labels(labels: Any, batch: int, device: torch.device) -> Tensor:
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


def standard_error(values: Tensor) -> Tensor:
    """s / √n along the first dimension; NaN for a single sample, which has no spread.

    >>> standard_error(torch.tensor([1.0, 3.0]))
    tensor(1.)
    """
    n = len(values)
    return values.std(0) / math.sqrt(n) if n > 1 else torch.full_like(values.sum(0), torch.nan)
