"""How each function of torch is recorded on a tape, and replayed at another input with its gates held.

Linear functions are called again; a gate leaves behind which piece, entry or order counted, and from then on is linear
too. Whatever is in no table cannot be held, and the step goes by double backward.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

#: A position or a keyword.
Place = int | str


class NotHeldError(Exception):
    """Why this step cannot be made with held gates."""


class NotSharedError(NotHeldError):
    """Why the gates can be held, but the task and the prior cannot share their products with the weights."""


@dataclass(frozen=True)
class Linear:
    """Linear in all tensors that depend on the input, if they are in at most one of the groups of `factors`."""

    #: Where constants are added to what depends on the input, so that the linear part has zeros there.
    added: frozenset[Place] = frozenset()
    #: Groups of places that multiply one another.
    factors: tuple[frozenset[Place], ...] = ()


class HeldCall(Protocol):
    """A call of a gate on values that depend on the input."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def run(self) -> Any: ...
    def moves(self, item: Any) -> bool: ...
    def hold(self, result: Any, function: Callable[..., Any], *args: Any, added: Iterable[Place] = ()) -> Any: ...


def names(text: str) -> list[str]:
    return text.split()


def _places(*places: Place) -> frozenset[Place]:
    return frozenset(places)


_INPUT, _WEIGHT = _places(0, "input"), _places(1, "weight")
_LAYER = Linear(_places(2, "bias"), (_INPUT, _WEIGHT))
_PAIR = (_places(0, "self", "input"), _places(1, "other", "mat2", "vec2", "vec", "tensor"))

LINEAR: dict[str, Linear] = {
    **dict.fromkeys(
        names(
            """
        neg negative positive sum mean nansum cumsum trace diff view reshape view_as reshape_as flatten unflatten
        squeeze unsqueeze expand expand_as broadcast_to permute transpose t movedim moveaxis swapaxes swapdims select
        narrow diagonal diag diag_embed triu tril flip fliplr flipud rot90 roll repeat tile repeat_interleave unfold
        fold clone contiguous to type_as float double half bfloat16 type pixel_shuffle pixel_unshuffle channel_shuffle
        index_select gather take take_along_dim masked_select ravel interpolate upsample avg_pool1d avg_pool2d
        avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d split split_with_sizes chunk
        tensor_split unbind __getitem__ T mT atleast_1d atleast_2d atleast_3d
        """
        ),
        Linear(),
    ),
    **dict.fromkeys(names("add sub subtract rsub __rsub__ __radd__"), Linear(_places(0, 1, "input", "other"))),
    **dict.fromkeys(
        names("cat concat concatenate stack hstack vstack dstack column_stack"), Linear(_places(0, "tensors"))
    ),
    "where": Linear(_places(1, 2, "input", "self", "other")),
    "masked_fill": Linear(_places(0, "input", 2, "value")),
    "pad": Linear(_places(3, "value")),
    **dict.fromkeys(names("mul multiply __rmul__ matmul mm bmm mv dot inner outer __rmatmul__"), Linear(factors=_PAIR)),
    **dict.fromkeys(
        names("linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"),
        _LAYER,
    ),
    "addmm": Linear(_places(0, "input"), (_places(1, "mat1"), _places(2, "mat2"))),
    "baddbmm": Linear(_places(0, "input"), (_places(1, "batch1"), _places(2, "batch2"))),
    # A divisor is a factor that no value may move in: see `divisor`.
    **dict.fromkeys(names("div divide true_divide __truediv__"), Linear()),
    "einsum": Linear(),
    "batch_norm": Linear(_places(1, "running_mean", 4, "bias")),
}

#: Functions of one tensor that take another for its shape or type alone.
SHAPED = frozenset(names("view_as reshape_as expand_as type_as to"))

#: Their results do not move until a gate switches.
STEPS = frozenset(
    names(
        """
    eq ne lt le gt ge equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor
    logical_not isnan isinf isfinite argmax argmin argsort any all count_nonzero nonzero signbit
    __eq__ __ne__ __lt__ __le__ __gt__ __ge__ zeros_like ones_like empty_like full_like rand_like randn_like new_zeros
    new_ones new_empty new_full new_tensor
    """
    )
)

#: Questions about a tensor that its values do not answer.
LOOKS = frozenset(
    names(
        """
    shape size dim ndim ndimension numel nelement dtype device layout stride is_contiguous is_floating_point is_complex
    requires_grad is_leaf grad_fn is_cuda is_cpu is_mps is_xpu is_meta is_sparse is_quantized is_nested is_mkldnn
    is_inference is_signed element_size itemsize get_device __len__ __hash__ names has_names nbytes output_nr
    storage_offset is_same_size __bool__ is_conj is_neg _is_view _base
    """
    )
)


def check_linear(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], moves: Callable[[Any], bool]) -> None:
    """Raise if a function that is linear in one argument is given several that depend on the input."""
    items: list[tuple[Place, Any]] = [*enumerate(args), *kwargs.items()]
    how = LINEAR[name]
    groups = sum(any(place in group and moves(item) for place, item in items) for group in how.factors)
    if groups > 1:
        raise NotHeldError(f"{name} multiplies two values that depend on the input.")
    if groups == 0 and name in {"addmm", "baddbmm"}:
        raise NotHeldError(f"{name} adds a product to a value that depends on the input.")
    if name == "diff" and (len(args) > 3 or {"prepend", "append"} & kwargs.keys()):  # noqa: PLR2004
        raise NotHeldError("diff has something before or after what depends on the input.")
    if (
        not how.added
        and not how.factors
        and name != "einsum"
        and not moves(args[:1])
        and not moves(kwargs.get("input"))
    ):
        raise NotHeldError(f"{name} is of a value that does not depend on the input.")
    if name == "einsum":
        operands = args[1] if len(args) == 2 and isinstance(args[1], list | tuple) else args[1:]  # noqa: PLR2004
        if sum(moves(operand) for operand in operands) > 1:
            raise NotHeldError("einsum multiplies two values that depend on the input.")
    if "div" in name and (moves(args[1:]) or moves(kwargs) or kwargs.get("rounding_mode") is not None):
        raise NotHeldError(f"{name} divides by a value that depends on the input, or rounds.")
    if name == "batch_norm" and (moves(args[1:]) or moves(kwargs) or _argument(args, kwargs, 5, "training", False)):
        raise NotHeldError("batch_norm normalises by statistics of the batch.")
    if kwargs.get("out") is not None:
        raise NotHeldError(f"{name} writes into out=.")


def _argument(args: tuple[Any, ...], kwargs: Mapping[str, Any], position: int, name: str, default: Any) -> Any:
    return args[position] if len(args) > position else kwargs.get(name, default)


def _relu(call: HeldCall) -> Any:
    y = call.run()
    return call.hold(y, _pick, call.args[0], y.detach() > 0)


def _leaky_relu(call: HeldCall) -> Any:
    positive = call.args[0].detach() > 0
    slope = _argument(call.args, call.kwargs, 1, "negative_slope", 0.01)
    return call.hold(call.run(), _two_slopes, call.args[0], positive, slope)


def _prelu(call: HeldCall) -> Any:
    x, weight = call.args
    if call.moves(weight):
        raise NotHeldError("prelu has a slope that depends on the input.")
    return call.hold(call.run(), _parametric, x, x.detach() > 0, weight)


def _clamp(call: HeldCall) -> Any:
    x = call.args[0].detach()
    low = _argument(call.args, call.kwargs, 1, "min", None)
    high = _argument(call.args, call.kwargs, 2, "max", None)
    if any(isinstance(bound, Tensor) and bound.requires_grad for bound in (low, high)):
        raise NotHeldError("clamp has a bound that is trained or depends on the input.")
    inside = torch.ones_like(x, dtype=torch.bool) if low is None else x >= low
    return _bounded(call, inside if high is None else inside & (x <= high))


def _clamp_min(call: HeldCall) -> Any:
    bound = _argument(call.args, call.kwargs, 1, "min", None)
    if isinstance(bound, Tensor):
        raise NotHeldError("clamp_min has a tensor for a bound.")
    return _bounded(call, call.args[0].detach() >= bound)


def _clamp_max(call: HeldCall) -> Any:
    bound = _argument(call.args, call.kwargs, 1, "max", None)
    if isinstance(bound, Tensor):
        raise NotHeldError("clamp_max has a tensor for a bound.")
    return _bounded(call, call.args[0].detach() <= bound)


def _hardtanh(call: HeldCall) -> Any:
    x = call.args[0].detach()
    low = _argument(call.args, call.kwargs, 1, "min_val", -1.0)
    high = _argument(call.args, call.kwargs, 2, "max_val", 1.0)
    return _bounded(call, (x > low) & (x < high))


def _relu6(call: HeldCall) -> Any:
    x = call.args[0].detach()
    return _bounded(call, (x > 0) & (x < 6))  # noqa: PLR2004 (its name says so)


def _threshold(call: HeldCall) -> Any:
    return _bounded(call, call.args[0].detach() > _argument(call.args, call.kwargs, 1, "threshold", None))


def _hardshrink(call: HeldCall) -> Any:
    y = call.run()
    return call.hold(y, _pick, call.args[0], y.detach() != 0)


def _bounded(call: HeldCall, inside: Tensor) -> Any:
    y = call.run()
    return call.hold(y, torch.where, inside, call.args[0], y.detach().masked_fill(inside, 0), added=(2,))


def _abs(call: HeldCall) -> Any:
    sign = call.args[0].detach().sign()
    return call.hold(call.run(), torch.mul, call.args[0], sign)


def _larger(call: HeldCall) -> Any:
    a, b = call.args[0], _argument(call.args, call.kwargs, 1, "other", None)
    smaller_wins = call.function.__name__ in {"minimum", "min", "fmin"}
    first = (a.detach() < b.detach()) if smaller_wins else (a.detach() > b.detach())
    # Where both are equal, autograd shares the gradient.
    share = first.to(a.dtype) + 0.5 * (a.detach() == b.detach())
    return call.hold(
        call.run(), _mixed, a, b, share, added=[i for i, side in enumerate((a, b)) if not call.moves(side)]
    )


def _extreme(call: HeldCall) -> Any:
    """max and min: of all, along a dimension, or of two tensors."""
    other = _argument(call.args, call.kwargs, 1, "other", None)
    if isinstance(other, Tensor):
        return _larger(call)
    if "dim" in call.kwargs or len(call.args) > 1:
        return _ordered(call)
    return _tied(call, None, keepdim=False)


def _ordered(call: HeldCall) -> Any:
    """Functions that return values and their indices along one dimension."""
    result = call.run()
    dim = {"topk": 2, "kthvalue": 2}.get(call.function.__name__, 1)
    along = _argument(call.args, call.kwargs, dim, "dim", -1)
    values, indices = result
    x = call.args[0]
    if x.dim() == 0:
        raise NotHeldError(f"{call.function.__name__} of a single number.")
    if values.dim() < x.dim():
        indices = indices.unsqueeze(along)
    call.hold(values, _entries, x, indices, along, values.shape)
    return result


def _amax(call: HeldCall) -> Any:
    dims = _argument(call.args, call.kwargs, 1, "dim", ())
    return _tied(call, dims or None, keepdim=bool(_argument(call.args, call.kwargs, 2, "keepdim", False)))


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


def _max_pool(call: HeldCall) -> Any:
    name = call.function.__name__
    dims = int(name[-2])
    adaptive = name.startswith("adaptive")
    place = 2 if adaptive else 6
    wanted = _argument(call.args, call.kwargs, place, "return_indices", False)
    kwargs = {key: value for key, value in call.kwargs.items() if key != "return_indices"}
    y, winners = getattr(F, name)(*call.args[:place], **kwargs, return_indices=True)
    call.hold(y, _winners, call.args[0], winners.flatten(-dims), dims, y.shape)
    return (y, winners) if wanted else y


def _dropout(call: HeldCall) -> Any:
    name = call.function.__name__
    in_place = name.endswith("_") or bool(_argument(call.args, call.kwargs, 3, "inplace", False))
    share = _argument(call.args, call.kwargs, 1, "p", 0.5)
    training = _argument(call.args, call.kwargs, 2, "training", call.kwargs.get("train", True))
    x = call.args[0]
    if not training:
        return call.hold(call.run(), torch.clone, x)
    # The mask that the function would have drawn: it multiplies, so ones become the mask.
    mask = getattr(F, name.rstrip("_"))(torch.ones_like(x.detach()), share, training=True)
    return call.hold(x.mul_(mask) if in_place else x * mask, torch.mul, x, mask)


GATES: dict[str, Callable[[HeldCall], Any]] = {
    "relu": _relu,
    "leaky_relu": _leaky_relu,
    "prelu": _prelu,
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": _clamp_min,
    "clamp_max": _clamp_max,
    "hardtanh": _hardtanh,
    "relu6": _relu6,
    **dict.fromkeys(("threshold", "_threshold"), _threshold),
    "hardshrink": _hardshrink,
    **dict.fromkeys(("abs", "absolute", "__abs__"), _abs),
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin"), _larger),
    **dict.fromkeys(("max", "min"), _extreme),
    **dict.fromkeys(("amax", "amin"), _amax),
    **dict.fromkeys(("sort", "topk", "kthvalue"), _ordered),
    **dict.fromkeys((f"{kind}max_pool{d}d" for kind in ("", "adaptive_") for d in (1, 2, 3)), _max_pool),
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d"), _dropout),
}


#: Where gates take the word to work in place, if not by name.
INPLACE = {"relu": 1, "relu6": 1, "leaky_relu": 2, "hardtanh": 3, "threshold": 3} | dict.fromkeys(
    ("dropout", "dropout1d", "dropout2d", "dropout3d"), 3
)


def _pick(x: Tensor, mask: Tensor) -> Tensor:
    return x * mask


def _two_slopes(x: Tensor, positive: Tensor, slope: float) -> Tensor:
    return torch.where(positive, x, x * slope)


def _parametric(x: Tensor, positive: Tensor, weight: Tensor) -> Tensor:
    if weight.numel() > 1:
        weight = weight.reshape(-1, *[1] * (x.dim() - 2))
    return torch.where(positive, x, x * weight)


def _mixed(a: Tensor, b: Tensor, share: Tensor) -> Tensor:
    return a * share + b * (1 - share)


def _entries(x: Tensor, indices: Tensor, dim: int, shape: torch.Size) -> Tensor:
    return x.gather(dim, indices).reshape(shape)


def _weighted_sum(x: Tensor, share: Tensor, dims: Any, keepdim: bool) -> Tensor:
    return (x * share).sum(dims, keepdim=keepdim)


def _winners(x: Tensor, winners: Tensor, dims: int, shape: torch.Size) -> Tensor:
    return x.flatten(-dims).gather(-1, winners).reshape(shape)
