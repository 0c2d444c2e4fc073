"""Sums of gradients along straight paths from references to inputs, in chunks of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from axiograd._calls import Call, LinearTarget, Model, target_rows
from axiograd._state import all_modules, preserved_buffers, with_buffers
from axiograd._typing import Target
from axiograd.attribution.base import Attribution, AttributionCall
from axiograd.attribution.layer import Layer
from axiograd.attribution.passes import check_finite, find_rows, gradient, leaves, rows_per_pass, run
from axiograd.errors import ConfigurationError


class PathMethod(Attribution):
    """Methods that integrate gradients along paths; without ``multiply_by_inputs`` their average is the attribution."""

    takes_baselines = True

    def __init__(
        self, model: Model, internal_batch_size: int | None, *, multiply_by_inputs: bool, layer: Layer | None
    ) -> None:
        super().__init__(model, layer=layer)
        if internal_batch_size is not None:
            check_count("internal_batch_size", internal_batch_size)
        self.internal_batch_size = internal_batch_size
        self.multiply_by_inputs = self.multiplies_by_inputs = multiply_by_inputs

    def _integrate(
        self, call: AttributionCall, references: Sequence[Tensor], alphas: Tensor, weights: Tensor
    ) -> list[Tensor]:
        """Σ_s w_s · (x − r_s) ⊙ ∇F(r_s + α_s (x − r_s)), the factor x − r_s left out if the method says so.

        References are ``[steps or 1, batch, ...]`` for each input, α is ``[steps, batch or 1]``, w ``[steps]``.
        """
        arguments, rows = self._rows_at_once(call, len(weights))
        batch = arguments.batch
        at_once = batch if rows >= batch or not _sliceable(call.target) else rows
        parts = []
        for samples in _slices(batch, at_once):
            some, target = arguments.rows(samples), target_rows(call.target, samples, batch)
            starts, own = [r[:, samples] for r in references], alphas if alphas.shape[1] == 1 else alphas[:, samples]
            total: list[Tensor] | None = None
            for steps in _slices(len(weights), max(1, rows // at_once)):
                # The points are not data: of a training step, only the pass that makes the outputs counts.
                with preserved_buffers(with_buffers(call.model)) if call.is_training_step else nullcontext():
                    found = self._chunk(call, some, target, _at(starts, steps), own[steps], weights[steps])
                total = found if total is None else [t + f for t, f in zip(total, found, strict=True)]
            parts.append(total or [])
        whole = zip(call.arguments.features, zip(*parts, strict=True), strict=True)
        return [torch.cat(own, dim=-x.dim()).to(x.dtype) for x, own in whole]

    def _rows_at_once(self, call: AttributionCall, n_steps: int) -> tuple[Call, int]:
        """The user's number of rows or what is fast, but the batch one step at a time where rows interact."""
        batch, rows = call.arguments.batch, self.internal_batch_size
        if rows is None:
            # In train mode a sample's output may depend on its batch (BatchNorm): keep the batch as it is.
            training = any(module.training for module in all_modules(call.model))
            rows = batch if training else max(batch, rows_per_pass(call.model, call.arguments.features))
        if rows == batch or (n_steps == 1 and rows > batch):
            return call.arguments, rows
        found = find_rows(call.model, call.arguments, call.baselines)
        return (call.arguments, batch) if found is None else (found, rows)

    def _chunk(
        self,
        call: AttributionCall,
        arguments: Call,
        target: Target,
        references: Sequence[Tensor],
        alphas: Tensor,
        weights: Tensor,
    ) -> list[Tensor]:
        """The sum over some steps, which share a pass."""
        n, batch = len(weights), arguments.batch
        away = [x - r for x, r in zip(arguments.features, references, strict=True)]
        points = leaves(
            [(r + _broadcast(alphas, d) * d).flatten(0, 1) for r, d in zip(references, away, strict=True)],
            create_graph=call.create_graph,
        )
        outputs = run(call.model, arguments.beside(slice(None), n), points)
        if n > 1 and not _has_rows(outputs, n * batch):
            # The model sums or averages over its rows: steps that share a pass would be summed, too.
            alone = [
                self._chunk(call, arguments, target, _at(references, s), alphas[s], weights[s]) for s in _slices(n, 1)
            ]
            return [torch.stack(terms).sum(0) for terms in zip(*alone, strict=True)]
        if _sliceable(target):
            scores = self._score(outputs, target_rows(target, slice(None), batch, n), n * batch)
        else:
            steps = [_step(outputs, rows, n * batch) for rows in _slices(n * batch, batch)]
            scores = torch.cat([self._score(step, target, batch) for step in steps])
        gradients = gradient(scores, points, create_graph=call.create_graph)
        sums = [self._weighted(g, d, weights) for g, d in zip(gradients, away, strict=True)]
        check_finite(points, scores, gradients, sums if self.multiply_by_inputs else (), batch=batch)
        return sums

    def _weighted(self, g: Tensor, away: Tensor, weights: Tensor) -> Tensor:
        """Σ_s w_s · (x − r_s) ⊙ g_s, or Σ_s w_s · g_s; half precision would lose the small terms of a long sum."""
        wide, dim = torch.promote_types(g.dtype, torch.float32), away.dim()
        by_step: Tensor = g.unflatten(1 - dim, (len(weights), -1)).to(wide)
        if self.multiply_by_inputs:
            by_step = by_step * away.to(wide)
        return (by_step * _broadcast(weights.to(g.device)[:, None], away).to(wide)).sum(-dim)


def check_count(name: str, value: object) -> None:
    """A number of steps, draws or rows is whole and at least one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ConfigurationError(f"{name}={value!r}: expected a whole number of at least 1.")


def _slices(size: int, step: int) -> Iterator[slice]:
    return (slice(i, i + step) for i in range(0, size, step))


def _at(references: Sequence[Tensor], steps: slice) -> list[Tensor]:
    """The references of some steps; one for all steps is not copied for each."""
    return [r if len(r) == 1 else r[steps] for r in references]


def _broadcast(per_step: Tensor, like: Tensor) -> Tensor:
    """``[steps, samples]`` shaped to broadcast over the features, not as large as they are."""
    return per_step.to(like).reshape(*per_step.shape, *[1] * (like.dim() - 2))


def _step(outputs: Any, rows: slice, size: int) -> Any:
    return pytree.tree_map_only(Tensor, lambda t: t[rows] if t.dim() and len(t) == size else t, outputs)


def _has_rows(outputs: Any, rows: int) -> bool:
    """Whether everything that can be differentiated has one row per sample and step."""
    tensors = [t for t in pytree.tree_leaves(outputs) if isinstance(t, Tensor) and t.requires_grad]
    return all(t.dim() > 0 and len(t) == rows for t in tensors)


def _sliceable(target: Target) -> bool:
    """Whether the target can be restricted to some samples: not if a callable may hold a value per sample."""
    return not callable(target) or isinstance(target, LinearTarget)
