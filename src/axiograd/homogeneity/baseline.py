"""Baselines: the input is b + u with u of degree 1; b is carried along until the program takes it out again.

An affine operator A maps b + u to A(b) plus the linear part of A on u, so the carried constant is A(b).
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from axiograd.homogeneity.domain import Value, of_degree

if TYPE_CHECKING:
    from axiograd.homogeneity.interpret import Interpreter

_AFFINE = """
    add sub rsub mul div linear conv1d conv2d conv3d convolution matmul mm bmm addmm neg mean sum view
    reshape flatten unflatten permute transpose t expand squeeze unsqueeze select slice narrow split
    split_with_sizes chunk unbind cat stack clone contiguous _to_copy to avg_pool1d avg_pool2d
    adaptive_avg_pool2d _unsafe_view alias flip roll repeat index index_select constant_pad_nd pad
    upsample_nearest2d upsample_bilinear2d detach
"""
_AFFINE_NAMES = {f"aten::{name}" for name in _AFFINE.split()}


def follow_offset(interpreter: "Interpreter", node: fx.Node, name: str, values: list[Value]) -> Any:
    """The result of an affine operator on a shifted value, or None (reported) if the shift is lost."""
    moving = [v for v in values if not v.is_constant]
    if node.kwargs.get("rounding_mode") is not None:
        name = f"{name} with rounding"
    divides = name.startswith("aten::div") and isinstance(node.args[0], fx.Node)
    numerator = not divides or interpreter.environment[node.args[0]] is moving[0]  # type: ignore[index]
    occurrences = sum(v is moving[0] for v in values)
    if name.rstrip("_") in _AFFINE_NAMES and len(moving) == 1 and occurrences == 1 and numerator:
        result = _apply(interpreter, node)
        if isinstance(result, Tensor):
            return _shifted(moving[0], result)
        if isinstance(result, list | tuple) and all(isinstance(r, Tensor) for r in result):
            return tuple(_shifted(moving[0], r) for r in result)
    interpreter.report.violation(
        node,
        op=name.replace("::", "."),
        reason="The baseline has not been taken out of the input before this operator.",
        fix="Subtract the baseline from the input first: x − b must be what the network sees.",
        kind="constant",
    )
    return None


def _apply(interpreter: "Interpreter", node: fx.Node) -> Any:
    from axiograd.homogeneity.interpret import materialise

    try:
        with torch.no_grad():
            given = materialise([interpreter.read(node.args), interpreter.read(node.kwargs)])
            # An in-place operator works on a copy: the numbers are the baseline's own.
            args, kwargs = pytree.tree_map_only(Tensor, Tensor.clone, given)
            return node.target(*args, **kwargs)  # type: ignore[operator]
    except Exception:  # noqa: BLE001 - what cannot be computed cannot be followed
        return None


def _shifted(value: Value, offset: Tensor) -> Value:
    if bool((offset == 0).all()):
        return of_degree(value.degree or 0)
    return replace(value, offset=offset)
