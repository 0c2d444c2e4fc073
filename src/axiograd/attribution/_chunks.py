"""How many rows a path method runs at once: only as many as leave every sample's output as it is alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from axiograd._calls import Model
from axiograd._state import all_modules
from axiograd.attribution.base import AttributionCall
from axiograd.attribution.passes import FINE, attribution_pass, run

#: Numbers in one pass of convolutions on a processor, eight photos: with 50, a ResNet-18 costs half as much again.
_CACHED = 1_250_000
#: Numbers in one pass at most, thirty-two photos: where there are large linear layers, whose weights are read once a
#: pass, and on other devices.
_MOST = 5_000_000
#: Rows in one pass at least and at most, and numbers in rows that are so small that there may be more of them.
_FEWEST, _MANY, _SMALL = 8, 512, 2**16


def rows_at_once(call: AttributionCall, n_steps: int, rows: int | None) -> int:
    """The user's ``rows`` or what is fast, but the batch one step at a time where the model does not allow others.

    Steps of a path share a pass, for which arguments with one row per sample are repeated. A tensor with as many rows
    as the batch has samples may also be a constant, a matrix say, and is then to be left alone: the model is asked.
    """
    batch = call.arguments.batch
    if rows is None:
        # In train mode a sample's output may depend on its batch (BatchNorm): keep the batch as it is.
        training = any(module.training for module in all_modules(call.model))
        rows = batch if training else max(batch, _fast_rows(call.model, call.arguments.features))
    if rows == batch or (n_steps == 1 and rows > batch) or not _has_rows_beside(call):
        return rows
    return rows if _keeps_outputs(call, min(rows, batch)) else batch


def _fast_rows(model: Model, features: Sequence[Tensor]) -> int:
    """As many rows as a processor's caches like, and enough of them for the weights of linear layers.

    >>> _fast_rows(nn.Conv2d(3, 8, 3), [torch.zeros(1, 3, 224, 224)])
    8
    >>> _fast_rows(nn.Linear(20, 3), [torch.zeros(1, 20)])
    3276
    """
    numbers = max(1, sum(x[0].numel() for x in features))
    wanted = _MOST
    if features[0].device.type == "cpu":
        linear = sum(m.in_features * m.out_features for m in all_modules(model) if isinstance(m, nn.Linear))
        wanted = min(max(linear, _CACHED), _MOST)
    return max(_FEWEST, min(wanted // numbers, _MANY), _SMALL // numbers)


def _has_rows_beside(call: AttributionCall) -> bool:
    """Whether something that is no feature has as many rows as there are samples."""
    arguments = call.arguments
    named = [*enumerate(arguments.positional), *arguments.keyword.items()]
    beside = pytree.tree_leaves([value for slot, value in named if slot not in arguments.slots])
    return any(isinstance(value, Tensor) and value.dim() and len(value) == arguments.batch for value in beside)


def _keeps_outputs(call: AttributionCall, first: int) -> bool:
    """Whether samples have the same outputs in a batch of the first ones, and beside copies, as in their own batch.

    Asked at the inputs and halfway to the baselines, in case that one of the two is where the model is flat.
    """
    arguments, features = call.arguments, call.arguments.features
    middle = tuple((x + b) / 2 for x, b in zip(features, call.baselines, strict=True))
    joined = tuple(torch.cat([x, m]) for x, m in zip(features, middle, strict=True))
    some = slice(0, first)
    guard = attribution_pass(call.model, features[0].device, create_graph=False, preserve=True)
    with guard, torch.no_grad():
        alone = [run(call.model, arguments, point) for point in (features, middle)]
        try:
            fewer = (
                run(call.model, arguments.rows(some), [x[some] for x in features])
                if first < arguments.batch
                else alone[0]
            )
            together = run(call.model, arguments.beside(slice(None), 2), joined)
        except (RuntimeError, ValueError, IndexError):  # a matrix that no longer fits
            return False
    leaves = zip(*map(pytree.tree_leaves, (*alone, fewer, together)), strict=True)
    return all(
        _same(at_x[some], few) and _same(torch.cat([at_x, at_middle]), both)
        for at_x, at_middle, few, both in leaves
        if isinstance(at_x, Tensor) and at_x.is_floating_point() and at_x.dim()
    )


def _same(apart: Tensor, joint: Tensor) -> bool:
    """Equal but for the rounding of another batch size."""
    if apart.shape != joint.shape:
        return False
    return bool((apart - joint).abs().max() <= FINE * apart.abs().max())
