"""Which functions of torch are linear, which are gates, and what is said where one is neither.

Linear functions are called again; a gate leaves behind which piece, entry or order counted, and from then on is linear
too. Whatever is in no table cannot be held, and the step goes by double backward.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: A position or a keyword.
Place = int | str


class NotHeldError(Exception):
    """Why this step cannot be made with held gates."""


class NotChainError(NotHeldError):
    """Why a model is not a chain of layers whose formulas are known."""


class NotSharedError(NotHeldError):
    """Why the gates can be held, but the task and the prior cannot share their products with the weights."""


@dataclass(frozen=True)
class Linear:
    """Linear in all tensors that depend on the input, if they are in at most one of the groups of `factors`."""

    #: Where constants are added to what depends on the input, so that the linear part has zeros there.
    added: frozenset[Place] = frozenset()
    #: Groups of places that multiply one another.
    factors: tuple[frozenset[Place], ...] = ()


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
    if name == "batch_norm" and (moves(args[1:]) or moves(kwargs) or argument(args, kwargs, 5, "training", False)):
        raise NotHeldError("batch_norm normalises by statistics of the batch.")
    if kwargs.get("out") is not None:
        raise NotHeldError(f"{name} writes into out=.")


def argument(args: tuple[Any, ...], kwargs: Mapping[str, Any], position: int, name: str, default: Any) -> Any:
    return args[position] if len(args) > position else kwargs.get(name, default)
