"""Sums of gradients along paths from references to inputs, in chunks of bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from axiograd._calls import LinearTarget, target_rows
from axiograd._state import preserved_buffers, with_buffers
from axiograd._typing import Target
from axiograd.attribution.base import Attribution, AttributionCall
from axiograd.attribution.passes import check_finite, gradient, leaves, run


@dataclass(frozen=True)
class PathStep:
    """One point on each sample's path: r + α · (x − r), and the weight of the gradient there."""

    references: tuple[Tensor, ...]
    alphas: Tensor  # scalar, or one per sample
    weight: float


class PathMethod(Attribution):
    """Methods that integrate gradients along paths; without ``multiply_by_inputs`` their average is the attribution."""

    multiply_by_inputs: bool

    @property
    def multiplies_by_inputs(self) -> bool:  # type: ignore[override]  # Captum's name for it
        """Whether x − x′ is a factor."""
        return self.multiply_by_inputs


def integrate(method: PathMethod, call: AttributionCall, steps: Sequence[PathStep], rows: int) -> list[Tensor]:
    """Σ_s w_s · (x − r_s) ⊙ ∇F(r_s + α_s (x − r_s)), at most ``rows`` samples × steps in memory at once.

    The factor x − r_s is left out if the method says so.
    """
    batch = call.arguments.batch
    at_once = batch if rows >= batch or not _sliceable(call.target) else rows
    per_chunk = max(1, rows // at_once)
    totals = []
    for samples in (slice(i, i + at_once) for i in range(0, batch, at_once)):
        total: list[Tensor] | None = None
        for chunk in (steps[i : i + per_chunk] for i in range(0, len(steps), per_chunk)):
            # The points are not data: of a training step, only the pass that makes the outputs counts in statistics.
            with preserved_buffers(with_buffers(call.model)) if call.is_training_step else nullcontext():
                part = _chunk_sum(method, call, samples, chunk)
            if total is None:
                total = part
            elif call.create_graph:
                total = [t + p for t, p in zip(total, part, strict=True)]
            else:
                for t, p in zip(total, part, strict=True):
                    t.add_(p)
        totals.append(total or [])
    pairs = zip(call.arguments.features, zip(*totals, strict=True), strict=True)
    whole = ((x, torch.cat(parts, dim=-x.dim()) if len(parts) > 1 else parts[0]) for x, parts in pairs)
    return [total.to(x.dtype) for x, total in whole]


def _chunk_sum(method: PathMethod, call: AttributionCall, samples: slice, steps: Sequence[PathStep]) -> list[Tensor]:
    arguments = call.arguments.rows(samples)
    target = target_rows(call.target, samples, call.arguments.batch)
    n, batch = len(steps), arguments.batch
    displacements, points = [], []
    for i, x in enumerate(arguments.features):
        # One baseline for all steps is not copied for each.
        distinct = steps[:1] if all(s.references is steps[0].references for s in steps) else steps
        references = _stacked([s.references[i][samples] for s in distinct])
        alphas = _stacked([_per_sample(s.alphas, samples, x) for s in steps])
        displacements.append(x - references)
        points.append((references + alphas * displacements[-1]).flatten(0, 1))
    points = list(leaves(points, create_graph=call.create_graph))
    outputs = run(call.model, arguments.beside(slice(None), n), points)
    if n > 1 and not _has_rows(outputs, n * batch):
        # The model sums or averages over its rows: steps that share a pass would be summed, too.
        parts = [_chunk_sum(method, call, samples, [step]) for step in steps]
        return [torch.stack(terms).sum(0) for terms in zip(*parts, strict=True)]
    if _sliceable(target):
        every = target if n == 1 else target_rows(target, slice(None), batch, n)
        scores = method._score(outputs, every, n * batch)  # noqa: SLF001
    else:
        scores = torch.cat([method._score(_rows_of(outputs, s, n, batch), target, batch) for s in range(n)])  # noqa: SLF001
    gradients = gradient(scores, points, create_graph=call.create_graph)
    sums = [
        _weighted(g, displacement, steps, batch, multiplied=method.multiply_by_inputs)
        for g, displacement in zip(gradients, displacements, strict=True)
    ]
    check_finite(points, scores, gradients, sums if method.multiply_by_inputs else ())
    return sums


def _weighted(g: Tensor, displacement: Tensor, steps: Sequence[PathStep], batch: int, *, multiplied: bool) -> Tensor:
    """Σ_s w_s · (x − r_s) ⊙ g_s, or Σ_s w_s · g_s."""
    n, dim = len(steps), displacement.dim()
    # Half precision would lose the small terms of a long sum.
    wide = torch.promote_types(g.dtype, torch.float32)
    by_step: Tensor = g.unflatten(1 - dim, (n, batch)).to(wide)
    if multiplied:
        by_step = by_step * displacement.to(wide)
    if all(s.weight == steps[0].weight for s in steps):
        total: Tensor = by_step.squeeze(-dim) if n == 1 else by_step.sum(-dim)
        return total if steps[0].weight == 1 else total * steps[0].weight
    weights = torch.tensor([s.weight for s in steps], dtype=wide, device=g.device)
    return (by_step * weights.reshape(-1, *[1] * (dim - 1))).sum(-dim)


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(tensors)) if len(tensors) > 1 else tensors[0][None]


def _per_sample(alphas: Tensor, samples: slice, x: Tensor) -> Tensor:
    """α shaped to broadcast over the features, not as large as they are."""
    chosen = alphas.reshape(1) if alphas.dim() == 0 else alphas[samples]
    return chosen.to(x).reshape(-1, *[1] * (x.dim() - 1))


def _rows_of(outputs: Any, step: int, n: int, batch: int) -> Any:
    if n == 1:
        return outputs
    return pytree.tree_map_only(
        Tensor,
        lambda t: t[step * batch : (step + 1) * batch] if t.dim() and len(t) == n * batch else t,
        outputs,
    )


def _has_rows(outputs: Any, rows: int) -> bool:
    """Whether everything that can be differentiated has one row per sample and step."""
    tensors = [t for t in pytree.tree_leaves(outputs) if isinstance(t, Tensor) and t.requires_grad]
    return all(t.dim() > 0 and len(t) == rows for t in tensors)


def _sliceable(target: Target) -> bool:
    """Whether the target can be restricted to some samples: not if a callable may hold a value per sample."""
    return not callable(target) or isinstance(target, LinearTarget)
