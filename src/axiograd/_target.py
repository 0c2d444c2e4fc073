"""From a model's output and a target to one scalar per sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from axiograd._typing import Target
from axiograd.errors import TargetError


@dataclass(frozen=True, eq=False)
class LinearTarget:
    """A weighted sum of outputs, Σ_c w_bc · F_c(x_b): one scalar per sample, of the same degree as the outputs.

    >>> LinearTarget(torch.tensor([[1.0, -1.0]]))(torch.tensor([[3.0, 5.0]]))
    tensor([-2.])
    """

    weights: Tensor

    def __call__(self, output: Any) -> Tensor:
        found = logits(output)
        flat = found.flatten(1) if found.dim() > 1 else found[:, None]
        if flat.shape[1] != self.weights.flatten(1).shape[1] or len(self.weights) not in {1, len(flat)}:
            raise TargetError(
                f"weights of shape {tuple(self.weights.shape)} do not fit an output of shape {tuple(flat.shape)}: "
                "expected one row per sample (or a single one) and one weight per output."
            )
        return (flat * self.weights.flatten(1).to(flat)).sum(1)


def logits(output: Any) -> Tensor:
    """The tensor that targets index: the output itself, or its ``logits``.

    >>> logits({"logits": torch.ones(1, 2), "hidden": None})
    tensor([[1., 1.]])
    """
    if isinstance(output, Tensor):
        return output
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(found, Tensor):
        return found
    if isinstance(output, tuple | list) and len(output) == 1 and isinstance(output[0], Tensor):
        return output[0]
    raise TargetError(
        f"the model returned {type(output).__name__}, not a tensor or something with logits: pass a callable "
        "target that takes this output and returns one scalar per sample."
    )


def class_scores(output: Any, batch: int) -> Tensor:
    """One score per class, ``[batch, classes]``; of a model with a single score, ``[batch, 1]``.

    >>> class_scores(torch.tensor([0.5, 2.0]), 2)
    tensor([[0.5000],
            [2.0000]])
    """
    raw = logits(output)
    raw = raw[:, None] if raw.dim() == 1 else raw
    if raw.dim() != 2 or len(raw) != batch:  # noqa: PLR2004  # samples and classes
        raise TargetError(
            f"the model gives outputs of shape {tuple(raw.shape)} for {batch} samples: expected one score, or one per "
            "class. `attribute` of a method takes any function of the outputs as its target."
        )
    return raw


def select(output: Any, target: Target, batch: int) -> Tensor:
    """One scalar per sample, ``[batch]``; for the target ``"all"`` every output, ``[batch, n]``.

    >>> output = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> select(output, torch.tensor([0, 1]), 2)
    tensor([1., 4.])
    >>> select(output, lambda o: o.sum(1), 2)
    tensor([3., 7.])
    """
    if callable(target):
        return _checked_scalars(target(output), batch)
    tensor = logits(output)
    if tensor.dim() == 0 and batch == 1:
        tensor = tensor.reshape(1)
    if tensor.dim() == 0 or len(tensor) != batch:
        raise TargetError(
            f"output of shape {tuple(tensor.shape)} for {batch} samples: expected samples along the first dimension."
        )
    if isinstance(target, str):
        if target != "all":
            raise TargetError(f"target {target!r}: the only target that is a word is 'all'.")
        return tensor.reshape(batch, -1)
    if target is None:
        if tensor.numel() != batch:
            raise TargetError(
                f"target is missing: the output has shape {tuple(tensor.shape)}, which is not one scalar per sample. "
                "Give target= a class index, one index per sample, a callable, or 'all'."
            )
        return tensor.reshape(batch)
    if type(target) is int and tensor.dim() == 2 and 0 <= target < tensor.shape[1]:  # noqa: PLR2004 - the usual case
        return tensor[:, target]
    return _indexed(tensor, _indices(target, batch, tensor))


def _indices(target: Any, batch: int, output: Tensor) -> Tensor:
    """Integer indices ``[batch or 1, output.dim() - 1]``."""
    if isinstance(target, Tensor):
        if target.dtype == torch.bool or target.is_floating_point() or target.is_complex():
            raise TargetError(f"target of dtype {target.dtype}: class indices are integers.")
        indices = target.to(output.device, torch.long)
        if indices.dim() > 1 and indices.shape != (batch, 1):
            raise TargetError(f"target of shape {tuple(target.shape)}: expected a number or one index per sample.")
        indices = indices.reshape(-1, 1)
    elif isinstance(target, bool) or not isinstance(target, int | Sequence):
        raise TargetError(
            f"target of type {type(target).__name__}: expected None, an integer, a 1-D tensor, a tuple, a list of "
            "integers or tuples, a callable, or 'all'."
        )
    else:
        rows = [target] if isinstance(target, int | tuple) else list(target)
        rows = [row if isinstance(row, tuple) else (row,) for row in rows]
        try:
            indices = torch.tensor(rows, dtype=torch.long, device=output.device)
        except (TypeError, ValueError):
            raise TargetError(f"target {target!r}: expected integers or tuples of integers of one length.") from None
    if len(indices) not in {1, batch}:
        raise TargetError(f"{len(indices)} targets for {batch} samples: give one, or one per sample.")
    if indices.dim() != 2 or indices.shape[1] != output.dim() - 1:  # noqa: PLR2004  # rows of indices
        raise TargetError(
            f"target {target!r} has {indices.shape[-1]} index per sample, but an output of shape "
            f"{tuple(output.shape)} needs {output.dim() - 1}."
        )
    return indices


def _indexed(output: Tensor, indices: Tensor) -> Tensor:
    if output.dim() == 2 and output.device.type == "cpu":  # noqa: PLR2004 - the usual case, where gather checks indices
        with suppress(RuntimeError):
            return output.gather(1, indices.expand(len(output), 1)).squeeze(1)
    sizes = torch.tensor(output.shape[1:], device=output.device)
    wrong = ((indices < 0) | (indices >= sizes)).any(1)
    if wrong.any():
        sample = int(wrong.nonzero()[0])
        raise TargetError(
            f"target {indices[sample].tolist()} of sample {sample} is out of range for an output of shape "
            f"{tuple(output.shape)}: indices run from 0 to {(sizes - 1).tolist()}."
        )
    samples = torch.arange(len(output), device=output.device)
    return output[(samples, *(column.expand(len(output)) for column in indices.unbind(1)))]


def rows_at(value: Tensor, samples: slice | Tensor, batch: int, repeats: int = 1) -> Tensor:
    """The rows of some samples, the selection repeated; a tensor that has no row per sample stays as it is.

    >>> rows_at(torch.tensor([5, 6, 7]), slice(2), batch=3, repeats=2)
    tensor([5, 6, 5, 6])
    """
    if not value.dim() or len(value) != batch:
        return value
    taken = value[samples if isinstance(samples, slice) else samples.to(value.device)]
    return taken.repeat(repeats, *[1] * (value.dim() - 1)) if repeats > 1 else taken


def target_rows(target: Target, samples: slice | Tensor, batch: int, repeats: int = 1) -> Target:
    """The target of some samples, repeated as they are."""
    if repeats == 1 and isinstance(samples, slice) and samples.indices(batch) == (0, batch, 1):
        return target
    if isinstance(target, LinearTarget):
        return (
            LinearTarget(rows_at(target.weights, samples, batch, repeats)) if len(target.weights) == batch else target
        )
    if isinstance(target, list) and len(target) == batch:
        taken = target[samples] if isinstance(samples, slice) else [target[i] for i in samples.tolist()]
        return taken * repeats
    return rows_at(target, samples, batch, repeats) if isinstance(target, Tensor) else target


def _checked_scalars(scores: object, batch: int) -> Tensor:
    if isinstance(scores, Tensor) and scores.shape == (batch, 1):
        scores = scores.squeeze(1)
    if not isinstance(scores, Tensor) or scores.shape != (batch,):
        what = f"shape {tuple(scores.shape)}" if isinstance(scores, Tensor) else f"type {type(scores).__name__}"
        raise TargetError(f"the callable target returned {what}: expected one scalar per sample, shape ({batch},).")
    return scores
