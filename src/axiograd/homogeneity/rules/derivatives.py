"""Calls whose backward pass is not the derivative of their forward pass, although both run without an error.

The closed form of Integrated Gradients needs ∇F. For most operators autograd gives it almost everywhere; here are the
exceptions, each with the arguments under which it is none. Where that is not seen at once, the call is refused. (What
has no derivative at all is found by `gradient_cuts`.)
"""

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx

from axiograd.homogeneity.degrees import Value
from axiograd.homogeneity.nodes import argument, shape_of
from axiograd.homogeneity.rules.call import Call
from axiograd.homogeneity.rules.origins import is_transpose, name_of
from axiograd.homogeneity.rules.registry import aten

#: What is wrong and what to do, or None.
Check: TypeAlias = Callable[[Call], tuple[str, str] | None]
CHECKS: dict[str, Check] = {}

_OVERLAP = (
    "may write to one place more than once: one write wins, and autograd gives the gradient to all of them.",
    "Write to places that are known to be different (constants, sort, topk, a mask), or add: index_add, scatter_add.",
)
_HALF = (
    "reads one half of a matrix that is not known to be symmetric, and gives the gradient to both.",
    "Make it symmetric where it is used: (A + A.mT) / 2, or X @ X.mT.",
)
#: Operators that are refused whenever one of these arguments depends on the input.
_ALWAYS = {
    "aten::as_strided_scatter": (("self", "src"), _OVERLAP),
    "aten::polar": (
        ("abs",),
        ("takes its radius to be nonnegative in the backward pass.", "Use torch.complex(r * cos, r * sin)."),
    ),
}


def require_derivative(call: Call) -> None:
    """Report a call whose arguments depend on the input and whose backward is not the derivative."""
    check = CHECKS.get(call.name.rstrip("_"))
    arguments, refusal = _ALWAYS.get(call.name, ((), None))
    found = refusal if _moves(call, *arguments) else None if check is None else check(call)
    if found is not None:
        call.report(f"{call.title} {found[0]}", found[1], kind="gradient")


def _check(names: str) -> Callable[[Check], Check]:
    def register(function: Check) -> Check:
        CHECKS.update(dict.fromkeys(aten(names), function))
        return function

    return register


def _moves(call: Call, *names: str) -> bool:
    return any(value.moves and not value.is_zero() for value in call.given(*names))


# Writes to places that may coincide


@_check("scatter index_copy")
def _along_a_dimension(call: Call) -> tuple[str, str] | None:
    if not _moves(call, "src", "source") or call.get("reduce") is not None:
        return None
    dim = call["dim"]
    size = (shape_of(argument(call.node, "self")) or (1,))[dim]
    along = dim if call.name.startswith("aten::scatter") else 0
    return None if _distinct(call, argument(call.node, "index"), along, size) else _OVERLAP


@_check("index_put _unsafe_index_put _index_put_impl put")
def _anywhere(call: Call) -> tuple[str, str] | None:
    if not _moves(call, "values", "source") or call.get("accumulate"):
        return None
    if "index" in call.arguments:
        return None if _pairs_distinct(call, [(argument(call.node, "index"), None)]) else _OVERLAP
    shape = shape_of(argument(call.node, "self")) or ()
    given = argument(call.node, "indices")
    indices = [(index, shape[dim]) for dim, index in enumerate(given) if index is not None]
    return None if _pairs_distinct(call, indices) else _OVERLAP


def _pairs_distinct(call: Call, indices: list[tuple[Any, Any]]) -> bool:
    """No two places are the same that some indices, one per dimension, list together."""
    if any(index.meta["val"].dtype in {torch.bool, torch.uint8} for index, _ in indices):
        return len(indices) == 1  # a mask lists each place once
    numbers = [_numbers(call, index, size) for index, size in indices]
    if all(n is not None for n in numbers):
        listed = torch.stack([n.flatten() for n in torch.broadcast_tensors(*numbers)], 1)
        return len(listed.unique(dim=0)) == len(listed)
    # An index that never repeats tells pairs apart.
    lengths = {str(shape_of(index)) for index, _ in indices}
    row = lengths == {str(shape_of(indices[0][0]))} and len(shape_of(indices[0][0]) or ()) == 1
    return row and any(_distinct(call, index, 0, size) for index, size in indices)


def _distinct(call: Call, index: Any, dim: int, size: Any) -> bool:
    """No number occurs twice along a dimension of an index: a constant, an order, or a single entry."""
    shape = shape_of(index) or ()
    if not shape or (isinstance(shape[dim], int) and shape[dim] == 1):
        return True
    dim %= len(shape)
    numbers = _numbers(call, index, size)
    if numbers is not None:
        return not bool((numbers.sort(dim).values.diff(dim=dim) == 0).any())
    if name_of(index) == "aten::expand" and _same_size(index, dim, shape):
        return _distinct(call, index.args[0], dim - len(shape), size)
    if name_of(index) == "aten::arange":
        return bool(argument(index, "start", 0) == 0 and argument(index, "step", 1) == 1)
    order = index if name_of(index) == "aten::argsort" else _source_of_indices(index, "aten::sort", "aten::topk")
    along = None if order is None else argument(order, "dim", -1)
    return isinstance(along, int) and along % len(shape) == dim


def _same_size(index: Any, dim: int, shape: tuple[Any, ...]) -> bool:
    """An expanded index repeats its numbers along other dimensions only."""
    before = shape_of(index.args[0]) or ()
    place = dim - len(shape)
    return -place <= len(before) and str(before[place]) == str(shape[dim])


def _numbers(call: Call, node: Any, size: Any) -> Tensor | None:
    """A constant index, counted from the front of a dimension of this size."""
    value = call.known.get(node)
    numbers = value.constant.value if isinstance(value, Value) and value.constant is not None else None
    if not isinstance(numbers, Tensor) or numbers.is_meta:
        return None
    if isinstance(size, int) and size > 0:
        return torch.remainder(numbers, size)
    return None if bool((numbers < 0).any()) else numbers


def _source_of_indices(node: Any, *names: str) -> fx.Node | None:
    """The operator of which the node is the second result, if it is one of these."""
    second = isinstance(node, fx.Node) and node.target is operator.getitem and node.args[1] == 1
    return node.args[0] if second and name_of(node.args[0]) in names else None


@_check("max_unpool2d max_unpool3d")
def _unpool(call: Call) -> tuple[str, str] | None:
    """Windows of the pooling that share no entry."""
    if not _moves(call, "self"):
        return None
    index = argument(call.node, "indices")
    while name_of(index) in aten("squeeze unsqueeze"):
        index = index.args[0]
    pool = _source_of_indices(index, *aten("max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices"))
    if pool is None:
        return _OVERLAP
    kernel, dilation = argument(pool, "kernel_size"), argument(pool, "dilation", 1)
    stride = argument(pool, "stride", []) or kernel
    kernel, stride, dilation = ([n] if isinstance(n, int) else n for n in (kernel, stride, dilation))
    apart = min(stride) > max(dilation) * (max(kernel) - 1)
    return None if apart or (kernel == stride and max(dilation) == 1) else _OVERLAP


# Reads that autograd does not follow


@_check("as_strided as_strided_copy")
def _strided_read(call: Call) -> tuple[str, str] | None:
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # brings SymPy, which takes its time

    base = argument(call.node, "self").meta.get("val")
    size, stride = argument(call.node, "size"), argument(call.node, "stride")
    start = argument(call.node, "storage_offset", base.storage_offset())
    numbers: list[Any] = [n.meta["val"] if isinstance(n, fx.Node) else n for n in (*size, *stride, start)]
    last = numbers[-1] + sum((n - 1) * s for n, s in zip(numbers[: len(size)], numbers[len(size) : -1], strict=True))
    first = base.storage_offset()
    inside = statically_known_true(numbers[-1] >= first) and statically_known_true(last < first + base.numel())
    if inside and base.is_contiguous():
        return None
    return "may read memory beyond its argument, where no gradient goes.", "Index, slice or unfold the tensor instead."


@_check("embedding")
def _embedding(call: Call) -> tuple[str, str] | None:
    whole = call.get("padding_idx", -1) == -1 and not call.get("scale_grad_by_freq", default=False)
    if whole or not _moves(call, "weight"):
        return None
    return (
        "reads a table that depends on the input, and gives its gradient to some rows only, or scaled.",
        "Index the table itself: table[indices].",
    )


@_check("_linalg_eigh linalg_eigh linalg_eigvalsh linalg_cholesky linalg_cholesky_ex linalg_pinv")
def _one_half(call: Call) -> tuple[str, str] | None:
    if call.name == "aten::linalg_pinv" and not call.get("hermitian"):
        return None
    matrix = next(iter(call.arguments))
    return None if not _moves(call, matrix) or _symmetric(argument(call.node, matrix)) else _HALF


def _symmetric(node: Any) -> bool:
    """X·Xᵀ or A + Aᵀ, perhaps times or over a number."""
    if not isinstance(node, fx.Node) or node.meta["val"].is_complex():
        return False
    name = name_of(node)
    if name in aten("mul div"):
        return isinstance(node.args[1], int | float) and not node.kwargs and _symmetric(node.args[0])
    if name in aten("mm bmm matmul") or (name == "aten::add" and not node.kwargs):
        return is_transpose(node.args[0], node.args[1])
    return False
