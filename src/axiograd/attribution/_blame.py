"""Why the attributions of a certified model do not add up: rounding, rows that interact, or hooks on gradients."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from axiograd._calls import Call, LinearTarget, Model, target_rows
from axiograd._state import unwrap
from axiograd._typing import Target
from axiograd.attribution._euler import Gap, euler_gap, rounding
from axiograd.attribution._path_check import fixed
from axiograd.attribution.base import AttributionCall
from axiograd.attribution.passes import Pass, attribution_pass, differentiate

if TYPE_CHECKING:
    from axiograd.attribution.x_gradient import XGradient


def blame(method: XGradient, gap: Gap, call: AttributionCall) -> str | None:
    """Why attributions do not add up though the model is certified; None if it is rounding after all."""
    if gap.precision == torch.float32 and _is_rounding(method, gap, call):
        return None
    if _rows_interact(method, gap, call):
        return (
            f"rows of the batch interact (sample {gap.sample} alone has a different score or attributions: a "
            "statistic over the batch, a graph whose nodes are rows) and are not samples; attribute in batches of "
            "one, or give what belongs together a batch dimension and one score: "
            "XGradient(lambda x: f(x[0]).sum().reshape(1)).attribute(x[None])"
        )
    return (
        "the model is certified, and the sample alone has the same score and attributions, so that the model's own "
        "gradient is not that of its output: look for gradient hooks; axiograd.verify measures it"
    )


def _again(method: XGradient, model: Model, arguments: Call, target: Target) -> Pass:
    """Another pass, by which nothing changes."""
    device = arguments.features[0].device
    with attribution_pass(model, device, create_graph=False, preserve=True):
        score = lambda outputs: method._score(outputs, target, arguments.batch)  # noqa: E731, SLF001
        return differentiate(model, arguments, score, create_graph=False)


def _is_rounding(method: XGradient, gap: Gap, call: AttributionCall) -> bool:
    """Whether the gap goes away in float64."""
    model = unwrap(call.model)
    if not isinstance(model, nn.Module):
        return False
    try:
        twin = copy.deepcopy(model).double()
        arguments = call.arguments.prepared(create_graph=False).to(torch.float64)
        done = _again(method, twin, arguments, call.target)
    except Exception:  # noqa: BLE001 - a model that cannot be copied or run in float64 is not tried
        return False
    wide = replace(call, arguments=arguments, baselines=tuple(b.double() for b in call.baselines))
    rest = euler_gap(method._attributions(wide, done), done.scores, twin, None)  # noqa: SLF001
    return rest is None or rest.relative < gap.relative / 100


def _rows_interact(method: XGradient, gap: Gap, call: AttributionCall) -> bool:
    """Whether the sample alone has another score or another gradient than it has in its batch."""
    if call.arguments.batch == 1:
        return False
    if callable(call.target) and not isinstance(call.target, LinearTarget):
        return True  # a target that may hold a value per sample cannot be asked about one alone
    sample, target = slice(gap.sample, gap.sample + 1), fixed(call.target)
    every = call.arguments.prepared(create_graph=False)
    try:
        whole = _again(method, call.model, every, target)
        alone = _again(method, call.model, every.rows(sample), target_rows(target, sample, call.arguments.batch))
    except Exception:  # noqa: BLE001 - a sample that cannot be run alone depends on the others
        return True
    pairs = [(whole.scores[sample].detach(), alone.scores.detach())]
    dim = whole.scores.dim() - 1
    pairs += [(w.narrow(dim, gap.sample, 1), a) for w, a in zip(whole.gradients, alone.gradients, strict=True)]
    tolerance = rounding(gap.precision)
    return any(float((w - a).abs().max()) > tolerance * float(w.abs().max() + a.abs().max()) for w, a in pairs)
