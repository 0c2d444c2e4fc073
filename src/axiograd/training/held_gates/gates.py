"""Gates: which piece of a function counted, which of several entries was the largest, which units were dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from axiograd.training.held_gates.operators import NotHeldError, argument

if TYPE_CHECKING:
    from axiograd.training.held_gates.recorder import HeldCall


def relu(call: HeldCall) -> Any:
    y = call.run()
    return call.hold(y, _pick, call.args[0], y.detach() > 0)


def leaky_relu(call: HeldCall) -> Any:
    positive = call.args[0].detach() > 0
    slope = argument(call.args, call.kwargs, 1, "negative_slope", 0.01)
    return call.hold(call.run(), _two_slopes, call.args[0], positive, slope)


def prelu(call: HeldCall) -> Any:
    x, weight = call.args[0], argument(call.args, call.kwargs, 1, "weight", None)
    if call.moves(weight):
        raise NotHeldError("prelu has a slope that depends on the input.")
    return call.hold(call.run(), _parametric, x, x.detach() > 0, weight)


def clamp(call: HeldCall) -> Any:
    x, name = call.args[0].detach(), call.function.__name__.rstrip("_")
    low = None if name == "clamp_max" else argument(call.args, call.kwargs, 1, "min", None)
    high = argument(call.args, call.kwargs, 1 if name == "clamp_max" else 2, "max", None)
    if any(isinstance(bound, Tensor) and (bound.requires_grad or name.startswith("clamp_")) for bound in (low, high)):
        raise NotHeldError(f"{name} has a bound that is a tensor, is trained or depends on the input.")
    inside = torch.ones_like(x, dtype=torch.bool) if low is None else x >= low
    return _bounded(call, inside if high is None else inside & (x <= high))


def hardtanh(call: HeldCall) -> Any:
    x = call.args[0].detach()
    low = argument(call.args, call.kwargs, 1, "min_val", -1.0)
    high = argument(call.args, call.kwargs, 2, "max_val", 1.0)
    return _bounded(call, (x > low) & (x < high))


def relu6(call: HeldCall) -> Any:
    x = call.args[0].detach()
    return _bounded(call, (x > 0) & (x < 6))  # noqa: PLR2004 (its name says so)


def threshold(call: HeldCall) -> Any:
    return _bounded(call, call.args[0].detach() > argument(call.args, call.kwargs, 1, "threshold", None))


def hardshrink(call: HeldCall) -> Any:
    y = call.run()
    return call.hold(y, _pick, call.args[0], y.detach() != 0)


def _bounded(call: HeldCall, inside: Tensor) -> Any:
    y = call.run()
    return call.hold(y, torch.where, inside, call.args[0], y.detach().masked_fill(inside, 0), added=(2,))


def absolute(call: HeldCall) -> Any:
    sign = call.args[0].detach().sign()
    return call.hold(call.run(), torch.mul, call.args[0], sign)


def dropout(call: HeldCall) -> Any:
    name = call.function.__name__
    in_place = name.endswith("_") or bool(argument(call.args, call.kwargs, 3, "inplace", False))
    share = argument(call.args, call.kwargs, 1, "p", 0.5)
    training = argument(call.args, call.kwargs, 2, "training", call.kwargs.get("train", True))
    x = call.args[0]
    if not training:
        return call.hold(call.run(), torch.clone, x)
    # The mask that the function would have drawn: it multiplies, so ones become the mask.
    mask = getattr(F, name.rstrip("_"))(torch.ones_like(x.detach()), share, training=True)
    return call.hold(x.mul_(mask) if in_place else x * mask, torch.mul, x, mask)


def _pick(x: Tensor, mask: Tensor) -> Tensor:
    return x * mask


def _two_slopes(x: Tensor, positive: Tensor, slope: float) -> Tensor:
    return torch.where(positive, x, x * slope)


def _parametric(x: Tensor, positive: Tensor, weight: Tensor) -> Tensor:
    if weight.numel() > 1:
        weight = weight.reshape(-1, *[1] * (x.dim() - 2))
    return torch.where(positive, x, x * weight)


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


#: All gates, by the names of their functions in torch.
GATES: dict[str, Callable[[HeldCall], Any]] = {
    "relu": relu,
    "leaky_relu": leaky_relu,
    "prelu": prelu,
    **dict.fromkeys(("clamp", "clip", "clamp_min", "clamp_max"), clamp),
    "hardtanh": hardtanh,
    "relu6": relu6,
    **dict.fromkeys(("threshold", "_threshold"), threshold),
    "hardshrink": hardshrink,
    **dict.fromkeys(("abs", "absolute", "__abs__"), absolute),
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin"), larger),
    **dict.fromkeys(("max", "min"), extreme),
    **dict.fromkeys(("amax", "amin"), amax),
    **dict.fromkeys(("sort", "topk", "kthvalue"), ordered),
    **dict.fromkeys((f"{kind}max_pool{d}d" for kind in ("", "adaptive_") for d in (1, 2, 3)), max_pool),
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d"), dropout),
}
#: Where gates take the word to work in place, if not by name.
INPLACE = {"relu": 1, "relu6": 1, "leaky_relu": 2, "hardtanh": 3, "threshold": 3} | dict.fromkeys(
    ("dropout", "dropout1d", "dropout2d", "dropout3d"), 3
)
