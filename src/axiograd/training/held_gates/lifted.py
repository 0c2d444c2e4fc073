"""Lifted networks, F(x) = ρ(x)·f(w) with w = x/ρ(x), by the held gates of the network f inside.

While the gates of f are held, ρ and w do not depend on the weights θ. With u the weights of the outputs, g = Jᵀu the
gradient of u·f at w, and q = u·f(w),

    ∇ₓ u·F = g + (q − w·g)·∇ρ,

a function of g, q and x alone: a prior on it hands a direction to g and a further output gradient to f, sample by
sample, and both belong to the pass of f that is there anyway.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from axiograd._calls import Call, Model
from axiograd.attribution.passes import Pass, Score
from axiograd.homogeneity.conversion.lift import Lifted
from axiograd.homogeneity.conversion.scale import per_sample
from axiograd.training.held_gates.links import check_called_plainly
from axiograd.training.held_gates.operators import NotChainError, NotHeldError
from axiograd.training.task import Task


@dataclass(frozen=True, eq=False)
class Entered:
    """A call of a lifted network as the network inside sees it."""

    arguments: Call
    rho: Tensor
    #: ∇ρ by the input, and w, counted from the baseline.
    slope: Tensor
    unit: Tensor


def enter(model: Lifted, arguments: Call) -> Entered:
    """The call inside; raises where the scale is not one number per sample of one input."""
    try:
        check_called_plainly(model)
    except NotChainError as reason:
        raise NotHeldError(str(reason)) from reason
    if len(arguments.slots) != 1:
        raise NotHeldError("a lifted network has several inputs that scale.")
    (slot,), (feature,) = arguments.slots, arguments.features
    if feature.requires_grad:
        raise NotHeldError("the input of a lifted network is trained, too.")
    x = feature.detach().requires_grad_()
    positional, keyword = list(arguments.positional), dict(arguments.keyword)
    (positional if isinstance(slot, int) else keyword)[slot] = x  # type: ignore[index]
    with torch.enable_grad():
        inside = model.enter(tuple(positional), keyword)
        if len(inside.origins) != 1:
            raise NotHeldError("a lifted network has more than one scale per sample.")
        (slope,) = torch.autograd.grad(inside.rho.sum(), x)
    rho = inside.rho.detach()
    if not bool((rho > 0).all()):
        raise NotHeldError("an input of zeros has no scale.")
    (origin,) = inside.origins.values()
    inside.leaves = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in inside.leaves]
    args, kwargs = inside.arguments()
    within = replace(arguments, positional=args, keyword=kwargs, frame=None)
    w = within.features[0]
    return Entered(within, rho, slope, w if origin is None else w - origin)


class _Outside:
    """From the outputs of the network inside to those of the lifted one, once for the same ones."""

    def __init__(self, model: Lifted, rho: Tensor) -> None:
        self._model, self._rho = model, rho
        self._known: tuple[Any, Any] | None = None

    def __call__(self, outputs: Any) -> Any:
        if self._known is None or self._known[0] is not outputs:
            self._known = outputs, self._model.leave(outputs, self._rho)
        return self._known[1]


class _TaskInside(Task):
    """The task as a function of the outputs inside."""

    def __init__(self, task: Task, outside: _Outside) -> None:
        super().__init__(lambda outputs, _: task(outside(outputs)), None)


def differentiate_lifted(
    model: Model,
    arguments: Call,
    score: Score,
    *,
    through: Callable[..., Pass],
    create_graph: bool,
    task: Task | None = None,
) -> Pass:
    """Outputs and gradient of a lifted network, the network inside differentiated by `through`."""
    if not isinstance(model, Lifted):
        raise NotHeldError("the model is not a lifted network.")
    entered = enter(model, arguments)
    rho, outside = entered.rho, _Outside(model, entered.rho)
    further = {} if task is None else {"task": _TaskInside(task, outside)}

    def score_inside(outputs: Any) -> Tensor:
        scores = score(outside(outputs))
        if scores.dim() != 1:
            raise NotHeldError("each output is attributed.")
        return scores / rho.to(scores.dtype)

    done = through(model.model, entered.arguments, score_inside, create_graph=create_graph, **further)
    (g,) = done.gradients
    rest = done.scores - (entered.unit * g).flatten(1).sum(1)
    gradient = g + per_sample(rest, g) * entered.slope
    return Pass(outside(done.outputs), done.scores * rho.to(done.scores.dtype), (gradient,))
