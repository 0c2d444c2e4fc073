"""Calls whose backward pass is not the derivative of their forward pass, although both run without an error.

The closed form of Integrated Gradients needs ∇F. For most operators autograd gives it almost everywhere; here are the
exceptions, each with the arguments under which it is one. (What has no derivative at all is found by `gradient`.)
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor

from axiograd.homogeneity.nodes import argument
from axiograd.homogeneity.rules.call import Call
from axiograd.homogeneity.rules.distinct import disjoint_windows, distinct, distinct_together, no_overlap
from axiograd.homogeneity.rules.registry import aten
from axiograd.homogeneity.rules.sign import IS_NOTHING, sign
from axiograd.homogeneity.rules.symmetric import symmetric

#: What is wrong and what to do, or None.
Check: TypeAlias = Callable[[Call], tuple[str, str] | None]
_CHECKS: dict[str, Check] = {}
_OVERLAP = (
    "may write to one place more than once: one write wins, and autograd gives the gradient to all of them.",
    "Write to places that are known to be different (constants, sort, topk, a mask), or add: index_add, scatter_add.",
)


def require_derivative(call: Call) -> None:
    """Report a call whose arguments depend on the input and whose backward is not the derivative."""
    check = _CHECKS.get(call.name.rstrip("_"))
    found = None if check is None else check(call)
    if found is not None:
        call.report(f"{call.title} {found[0]}", found[1], kind="gradient")


def _check(*names: str) -> Callable[[Check], Check]:
    def register(function: Check) -> Check:
        _CHECKS.update(dict.fromkeys(names, function))
        return function

    return register


def _moves(call: Call, *names: str) -> bool:
    given = (call.value(name) for name in names if call.get(name) is not None)
    return any(value.moves and not value.is_zero() for value in given)


def _size(call: Call, dim: int) -> object:
    value = argument(call.node, "self").meta.get("val")
    return value.shape[dim] if isinstance(value, Tensor) and value.dim() else 1


@_check(*aten("scatter index_copy"))
def _along(call: Call) -> tuple[str, str] | None:
    if not _moves(call, "src", "source") or call.get("reduce") is not None:
        return None
    dim = call["dim"]
    along = dim if call.name.startswith("aten::scatter") else 0
    index = argument(call.node, "index")
    return None if distinct(index, along, call.known, _size(call, dim)) else _OVERLAP


@_check(*aten("index_put _unsafe_index_put _index_put_impl put"))
def _anywhere(call: Call) -> tuple[str, str] | None:
    if not _moves(call, "values", "source") or call.get("accumulate"):
        return None
    if "index" in call.arguments:
        indices: list[tuple[Any, object]] = [(argument(call.node, "index"), None)]
    else:
        given = argument(call.node, "indices")
        indices = [(index, _size(call, dim)) for dim, index in enumerate(given) if index is not None]
    return None if distinct_together(indices, call.known) else _OVERLAP


@_check(*aten("max_unpool2d max_unpool3d"))
def _unpool(call: Call) -> tuple[str, str] | None:
    if not _moves(call, "self"):
        return None
    index = argument(call.node, "indices")
    constant = call.value("indices").constant
    if constant is not None and isinstance(constant.value(), Tensor):
        places = constant.value().flatten(-2 if call.name.endswith("2d") else -3).sort().values
        return _OVERLAP if bool((places.diff() == 0).any()) else None
    return None if disjoint_windows(index) else _OVERLAP


@_check("aten::as_strided_scatter")
def _strided_write(call: Call) -> tuple[str, str] | None:
    if _moves(call, "self"):
        return "gives a gradient to what it overwrites.", "Assign to an index or a slice instead."
    if not _moves(call, "src"):
        return None
    return None if no_overlap(argument(call.node, "size"), argument(call.node, "stride")) else _OVERLAP


@_check("aten::as_strided", "aten::as_strided_copy")
def _strided_read(call: Call) -> tuple[str, str] | None:
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # brings SymPy, which takes its time

    base = argument(call.node, "self").meta.get("val")
    size, stride = argument(call.node, "size"), argument(call.node, "stride")
    start = argument(call.node, "storage_offset", base.storage_offset())
    numbers = [n.meta.get("val") if hasattr(n, "meta") else n for n in (*size, *stride, start)]
    count = len(size)
    end = numbers[-1] + sum((n - 1) * s for n, s in zip(numbers[:count], numbers[count:-1], strict=True))
    first = base.storage_offset()
    inside = statically_known_true(numbers[-1] >= first) and statically_known_true(end < first + base.numel())
    if inside and base.is_contiguous():
        return None
    return "may read memory beyond its argument, where no gradient goes.", "Index, slice or unfold the tensor instead."


@_check("aten::embedding")
def _embedding(call: Call) -> tuple[str, str] | None:
    padding, scaled = call.get("padding_idx", -1), call.get("scale_grad_by_freq", default=False)
    if not _moves(call, "weight") or (not scaled and isinstance(padding, int) and padding < 0):
        return None
    what = "scales gradients by frequency" if scaled else "gives no gradient to the row of padding_idx"
    return f"reads a table that depends on the input, and {what}.", "Index the table itself: table[indices]."


@_check("aten::polar")
def _radius(call: Call) -> tuple[str, str] | None:
    if not _moves(call, "abs") or sign(argument(call.node, "abs")) != IS_NOTHING:
        return None
    return (
        "takes its radius to be nonnegative in the backward pass: where it is not, the gradient has the wrong sign.",
        "Multiply by the rotation instead: torch.complex(r * cos, r * sin), or take abs of the radius.",
    )


@_check(*aten("_linalg_eigh linalg_eigh linalg_eigvalsh linalg_cholesky linalg_cholesky_ex cholesky linalg_pinv"))
def _half(call: Call) -> tuple[str, str] | None:
    if call.name == "aten::linalg_pinv" and not call.get("hermitian"):
        return None
    matrix = next(iter(call.arguments))
    if not _moves(call, matrix) or symmetric(argument(call.node, matrix), call.known):
        return None
    return (
        "reads one half of a matrix that is not known to be symmetric, and gives the gradient to both.",
        "Make it symmetric where it is used: (A + A.mT) / 2, or X @ X.mT.",
    )
