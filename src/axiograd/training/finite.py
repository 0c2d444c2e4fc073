"""Who is to blame for a NaN or Inf: the term, the step, the samples."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from axiograd.errors import NotFiniteError
from axiograd.training.batches import Batch
from axiograd.training.mixup import MixedTarget


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
