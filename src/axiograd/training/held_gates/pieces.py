"""Gates entry by entry: which piece of a function counted, and which units were dropped."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from axiograd.training.held_gates.operators import HeldCall, NotHeldError, argument


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
    x = call.args[0].detach()
    low = argument(call.args, call.kwargs, 1, "min", None)
    high = argument(call.args, call.kwargs, 2, "max", None)
    if any(isinstance(bound, Tensor) and bound.requires_grad for bound in (low, high)):
        raise NotHeldError("clamp has a bound that is trained or depends on the input.")
    inside = torch.ones_like(x, dtype=torch.bool) if low is None else x >= low
    return _bounded(call, inside if high is None else inside & (x <= high))


def clamp_min(call: HeldCall) -> Any:
    bound = argument(call.args, call.kwargs, 1, "min", None)
    if isinstance(bound, Tensor):
        raise NotHeldError("clamp_min has a tensor for a bound.")
    return _bounded(call, call.args[0].detach() >= bound)


def clamp_max(call: HeldCall) -> Any:
    bound = argument(call.args, call.kwargs, 1, "max", None)
    if isinstance(bound, Tensor):
        raise NotHeldError("clamp_max has a tensor for a bound.")
    return _bounded(call, call.args[0].detach() <= bound)


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
