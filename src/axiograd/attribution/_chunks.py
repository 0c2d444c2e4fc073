"""How many rows a path method runs at once: only as many as leave every sample's output as it is alone."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from axiograd.attribution.base import AttributionCall
from axiograd.attribution.passes import FINE, attribution_pass, run


def rows_at_once(call: AttributionCall, n_steps: int, rows: int | None) -> int | None:
    """The user's ``rows``, or the whole batch one step at a time where the model's other arguments do not allow it.

    Steps of a path share a pass, for which arguments with one row per sample are repeated. A tensor with as many rows
    as the batch has samples may also be a constant, a matrix say, and is then to be left alone: the model is asked.
    """
    batch = call.arguments.batch
    if rows == batch or (n_steps == 1 and (rows is None or rows > batch)) or not _has_rows_beside(call):
        return rows
    return rows if _keeps_outputs(call, batch if rows is None else min(rows, batch)) else batch


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
