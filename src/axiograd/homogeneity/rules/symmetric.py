"""Is a matrix symmetric by the way it was made? Some operators read one half of it, and differentiate as if it were."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from axiograd.homogeneity.domain import Value
from axiograd.homogeneity.nodes import argument, shape_of
from axiograd.homogeneity.rules.axes import alike, name_of
from axiograd.homogeneity.rules.registry import aten

Known = Mapping[fx.Node, Any]
_DEPTH = 8
_PRODUCTS = frozenset(aten("mm bmm matmul"))
#: Entry by entry, or matrix by matrix.
_KEEP = frozenset(aten("neg abs relu square sqrt clone contiguous _to_copy to alias linalg_inv inverse"))
_TURNS = frozenset(aten("t numpy_T mT adjoint"))


def symmetric(node: Any, known: Known, depth: int = 0) -> bool:
    """The matrix equals its transpose on every input."""
    shape = shape_of(node)
    if shape is None or len(shape) < 2 or depth >= _DEPTH or node.meta["val"].is_complex():  # noqa: PLR2004 - a matrix
        return False
    if shape[-1] == 1 and shape[-2] == 1:
        return True
    value = known.get(node)
    if isinstance(value, Value) and value.constant is not None:
        numbers = value.constant.value()
        return isinstance(numbers, Tensor) and not numbers.is_meta and torch.equal(numbers, numbers.mT)
    name = name_of(node)
    if name in _KEEP or (name == "aten::pow" and isinstance(node.args[1], int | float)) or _transposes(node):
        return symmetric(node.args[0], known, depth + 1)
    if name == "aten::diag_embed":
        return bool(argument(node, "offset", 0) == 0)
    if name in {"aten::cdist", "aten::outer"}:
        return alike(node.args[0], node.args[1])
    if name in _PRODUCTS:
        return _product(node.args[0], node.args[1], known, depth + 1)
    if name in {"aten::add", "aten::sub", "aten::mul", "aten::div"}:
        return not node.kwargs and _pair(name, node.args[0], node.args[1], known, depth + 1)
    return False


def _product(a: Any, b: Any, known: Known, depth: int) -> bool:
    """X·Xᵀ, or X·S·Xᵀ with a symmetric S."""
    if _is_transpose(a, b):
        return True
    if name_of(a) not in _PRODUCTS:
        return False
    return _is_transpose(a.args[0], b) and symmetric(a.args[1], known, depth)


def _pair(name: str, a: Any, b: Any, known: Known, depth: int) -> bool:
    if name in {"aten::add", "aten::mul"} and _is_transpose(a, b):
        return True
    if name in {"aten::mul", "aten::div"}:
        if _is_number(b):
            return symmetric(a, known, depth)
        if name == "aten::mul" and _is_number(a):
            return symmetric(b, known, depth)
    return symmetric(a, known, depth) and symmetric(b, known, depth)


def _is_number(item: Any) -> bool:
    """One number for a whole matrix."""
    shape = shape_of(item)
    return isinstance(item, int | float) or (
        # A size that varies is not known to be 1: one number per column would scale columns and not rows.
        shape is not None and all(isinstance(n, int) and n == 1 for n in shape[-2:])
    )


def _is_transpose(a: Any, b: Any) -> bool:
    if not isinstance(a, fx.Node) or not isinstance(b, fx.Node):
        return False
    if (_transposes(b) and alike(b.args[0], a)) or (_transposes(a) and alike(a.args[0], b)):
        return True
    # A column and the same as a row.
    if name_of(a) != "aten::unsqueeze" or name_of(b) != "aten::unsqueeze" or not alike(a.args[0], b.args[0]):
        return False
    dims = len(shape_of(a) or ())
    return {argument(n, "dim") % dims for n in (a, b)} == {dims - 2, dims - 1}


def _transposes(node: fx.Node) -> bool:
    """Swaps the last two dimensions and does nothing else."""
    name, dims = name_of(node), len(shape_of(node) or ())
    if name == "aten::transpose":
        return {argument(node, "dim0") % dims, argument(node, "dim1") % dims} == {dims - 2, dims - 1}
    if name == "aten::permute":
        return [d % dims for d in argument(node, "dims")] == [*range(dims - 2), dims - 1, dims - 2]
    return name in _TURNS
