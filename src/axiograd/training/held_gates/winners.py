"""Gates among entries: which of several was the largest, or came where in their order."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from axiograd.training.held_gates.operators import HeldCall, NotHeldError, argument


def larger(call: HeldCall) -> Any:
    a, b = call.args[0], argument(call.args, call.kwargs, 1, "other", None)
    smaller_wins = call.function.__name__ in {"minimum", "min", "fmin"}
    first = (a.detach() < b.detach()) if smaller_wins else (a.detach() > b.detach())
    # Where both are equal, autograd shares the gradient.
    share = first.to(a.dtype) + 0.5 * (a.detach() == b.detach())
    return call.hold(
        call.run(), _mixed, a, b, share, added=[i for i, side in enumerate((a, b)) if not call.moves(side)]
    )


def extreme(call: HeldCall) -> Any:
    """max and min: of all, along a dimension, or of two tensors."""
    other = argument(call.args, call.kwargs, 1, "other", None)
    if isinstance(other, Tensor):
        return larger(call)
    if "dim" in call.kwargs or len(call.args) > 1:
        return ordered(call)
    return _tied(call, None, keepdim=False)


def ordered(call: HeldCall) -> Any:
    """Functions that return values and their indices along one dimension."""
    result = call.run()
    dim = {"topk": 2, "kthvalue": 2}.get(call.function.__name__, 1)
    along = argument(call.args, call.kwargs, dim, "dim", -1)
    values, indices = result
    x = call.args[0]
    if x.dim() == 0:
        raise NotHeldError(f"{call.function.__name__} of a single number.")
    if values.dim() < x.dim():
        indices = indices.unsqueeze(along)
    call.hold(values, _entries, x, indices, along, values.shape)
    return result


def amax(call: HeldCall) -> Any:
    dims = argument(call.args, call.kwargs, 1, "dim", ())
    return _tied(call, dims or None, keepdim=bool(argument(call.args, call.kwargs, 2, "keepdim", False)))


def _tied(call: HeldCall, dims: Any, *, keepdim: bool) -> Any:
    """The largest or smallest, where several that are equal share."""
    x, y = call.args[0].detach(), call.run()
    dims = tuple(range(x.dim())) if dims is None else dims
    wide = y.detach() if keepdim else x.amax(dims, keepdim=True)
    if not keepdim:
        wide = y.detach().reshape(wide.shape)
    share = (x == wide).to(x.dtype)
    share /= share.sum(dims, keepdim=True)
    return call.hold(y, _weighted_sum, call.args[0], share, dims, keepdim)


def max_pool(call: HeldCall) -> Any:
    name = call.function.__name__
    dims = int(name[-2])
    adaptive = name.startswith("adaptive")
    place = 2 if adaptive else 6
    wanted = argument(call.args, call.kwargs, place, "return_indices", False)
    kwargs = {key: value for key, value in call.kwargs.items() if key != "return_indices"}
    y, winners = getattr(F, name)(*call.args[:place], **kwargs, return_indices=True)
    call.hold(y, _winners, call.args[0], winners.flatten(-dims), dims, y.shape)
    return (y, winners) if wanted else y


def _mixed(a: Tensor, b: Tensor, share: Tensor) -> Tensor:
    return a * share + b * (1 - share)


def _entries(x: Tensor, indices: Tensor, dim: int, shape: torch.Size) -> Tensor:
    return x.gather(dim, indices).reshape(shape)


def _weighted_sum(x: Tensor, share: Tensor, dims: Any, keepdim: bool) -> Tensor:
    return (x * share).sum(dims, keepdim=keepdim)


def _winners(x: Tensor, winners: Tensor, dims: int, shape: torch.Size) -> Tensor:
    return x.flatten(-dims).gather(-1, winners).reshape(shape)
