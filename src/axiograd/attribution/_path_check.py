"""The gradient along the path 0 → x: ∇F(tx) = tᵏ⁻¹∇F(x), which a threshold breaks though Euler's identity holds."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from axiograd._calls import LinearTarget, target_rows
from axiograd._state import all_modules
from axiograd._typing import Target
from axiograd.attribution.passes import gradient, run
from axiograd.homogeneity.refutation import MODEST_PATH, PATH, path_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from axiograd.attribution.base import Attribution, AttributionCall

#: With draws or batch statistics, whole batches are run one after the other: fewer points.
_FEW = (1.0, 2.0**-1, 2.0**-4)


def path_gap(
    method: Attribution, call: AttributionCall, rows: Sequence[int], guard: Callable[[], AbstractContextManager[None]]
) -> float:
    """How far single attributions of some samples are from Integrated Gradients, relative to the largest of each.

    One backward pass for all points on the path of a sample; where samples of a batch must stay together (train
    mode, draws, targets that hold a value per sample), three for the batch.
    """
    call = replace(call, target=fixed(call.target))
    half = any(x.dtype in {torch.float16, torch.bfloat16} for x in call.arguments.features)
    path = MODEST_PATH if half else PATH
    alone = not any(m.training for m in all_modules(call.model))
    if alone and (not callable(call.target) or isinstance(call.target, LinearTarget)):
        with guard():
            before = torch.get_rng_state()
            found = [_together(method, call, row, path) for row in rows]
            drawn = not torch.equal(torch.get_rng_state(), before)
        known = [gap for gap in found if gap is not None]
        if len(known) == len(found) and not drawn:
            return max(known)
    return _one_by_one(method, call, guard)


def _together(method: Attribution, call: AttributionCall, row: int, path: tuple[float, ...]) -> float | None:
    """All points of one sample's path as one batch; None if the model does not take such a batch."""
    sample = slice(row, row + 1)
    arguments = call.arguments.rows(sample, repeats=len(path))
    target = target_rows(call.target, sample, call.arguments.batch, len(path))
    away = [x[sample] - b[sample] for x, b in zip(call.arguments.features, call.baselines, strict=True)]
    try:
        points = _at(path, away, [b[sample] for b in call.baselines])
        outputs = run(call.model, arguments, points)
        scores = method._score(outputs, target, len(path))  # noqa: SLF001
        grads = gradient(_single(scores), points, create_graph=False)
    except Exception:  # noqa: BLE001 - a model may insist on its batch size
        return None
    return _gap([(a, g.detach()) for a, g in zip(away, grads, strict=True)], path, call.degree)


def _one_by_one(method: Attribution, call: AttributionCall, guard: Callable[[], AbstractContextManager[None]]) -> float:
    away = [x - b for x, b in zip(call.arguments.features, call.baselines, strict=True)]
    grads = []
    for t in _FEW:
        with guard():  # the same draws and the same statistics each time
            points = [(b + t * a).detach().requires_grad_() for a, b in zip(away, call.baselines, strict=True)]
            outputs = run(call.model, call.arguments, points)
            scores = method._score(outputs, call.target, call.arguments.batch)  # noqa: SLF001
            grads.append(gradient(_single(scores), points, create_graph=False))
    stacked = [torch.stack([g[i].detach() for g in grads]) for i in range(len(away))]
    return _gap(list(zip(away, stacked, strict=True)), _FEW, call.degree)


def _at(path: tuple[float, ...], away: Sequence[Tensor], baselines: Sequence[Tensor]) -> list[Tensor]:
    found = []
    for a, b in zip(away, baselines, strict=True):
        t = torch.tensor(path, dtype=a.dtype, device=a.device).reshape(-1, *[1] * (a.dim() - 1))
        found.append((b + t * a).detach().requires_grad_())
    return found


def _single(scores: Tensor) -> Tensor:
    """One score per row; of all outputs, a sum with signs that keep them apart."""
    if scores.dim() == 1:
        return scores
    signs = torch.randint(0, 2, scores.shape[1:], generator=torch.Generator().manual_seed(0)) * 2 - 1
    return (scores * signs.to(scores)).sum(1)


def _gap(pairs: Sequence[tuple[Tensor, Tensor]], path: tuple[float, ...], degree: float) -> float:
    measured = [path_error(a.detach(), g, path, degree) for a, g in pairs]
    size = max(s for _, s in measured)
    worst = max(gap for gap, _ in measured)
    return worst / size if size > 0 else 0.0


def fixed(target: Target) -> Target:
    """The target; all outputs instead of a combination that depends on them."""
    return "all" if isinstance(target, LinearTarget) and type(target) is not LinearTarget else target
