"""Backward passes that leave no graph behind: who differentiates their gradients again is told what to do."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from axiograd.errors import AxiogradError, DisconnectedError


class Refused(torch.autograd.Function):
    """Values that raise where somebody differentiates them."""

    @staticmethod
    def forward(ctx: Any, error: AxiogradError, *values: Tensor) -> tuple[Tensor, ...]:
        ctx.error = error
        return tuple(value.view_as(value) for value in values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # noqa: ARG004
        raise ctx.error


_NOT_TWICE = (
    "this step held the gates of the network, and its gradients cannot be differentiated a second time: say "
    "AttributionLoss(..., double_backward=True) for gradient penalties and Hessians."
)


def once(backward: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """A backward pass without a graph, as torch's `once_differentiable` makes it, but for the words of its error."""

    @wraps(backward)
    def called(ctx: Any, *given: Any) -> tuple[Any, ...]:
        with torch.no_grad():
            found = backward(ctx, *given)
        if not (torch.is_grad_enabled() and any(isinstance(one, Tensor) and one.requires_grad for one in given)):
            return found
        places = [i for i, one in enumerate(found) if isinstance(one, Tensor)]
        values = [found[i].detach().requires_grad_() for i in places]
        refused = Refused.apply(DisconnectedError(_NOT_TWICE), *values)  # type: ignore[no-untyped-call]
        return tuple(refused[places.index(i)] if i in places else one for i, one in enumerate(found))

    return called
