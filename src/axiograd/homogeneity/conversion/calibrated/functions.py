"""Operators of a traced program as the functions of torch that people call, which training with held gates knows."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from axiograd.homogeneity.tracing.nodes import op_name, schema_of

#: Functions of torch with the arguments of the operator of that name.
_SAME = (
    *(
        "relu",
        "add",
        "sub",
        "mul",
        "neg",
        "abs",
        "clamp",
        "clamp_min",
        "clamp_max",
        "maximum",
        "minimum",
        "amax",
        "amin",
    ),
    *("cat", "stack", "split", "split_with_sizes", "chunk", "select", "narrow", "clone", "mean", "sum"),
    *("reshape", "flatten", "transpose", "permute", "unsqueeze", "squeeze"),
    *(f"{kind}{n}d" for kind in ("conv", "conv_transpose", "max_pool") for n in (1, 2, 3)),
)
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"aten::{name}": getattr(torch, name) for name in _SAME},
    **{f"aten::{kind}avg_pool{n}d": getattr(F, f"{kind}avg_pool{n}d") for kind in ("", "adaptive_") for n in (1, 2, 3)},
    "aten::linear": F.linear,
    "aten::leaky_relu": F.leaky_relu,
    "aten::hardtanh": F.hardtanh,
    # A view as the reshape that it is for other memory formats than the example's.
    "aten::view": torch.reshape,
}


def function_of(operator: Any) -> Any:
    """The function of torch that does what an operator does; the operator itself where none is known.

    >>> function_of(torch.ops.aten.relu.default) is torch.relu
    True
    """
    schema = schema_of(operator)
    return operator if schema is None else _FUNCTIONS.get(schema.name, operator)


def callable_of(node: fx.Node) -> Any:
    """What a node calls."""
    return _size if op_name(node) == "aten::sym_size" else function_of(node.target)


def _size(x: Tensor, dim: int) -> int:
    return x.size(dim)


def copied(graph: fx.Graph, node: fx.Node, argument: Callable[[fx.Node], Any]) -> fx.Node:
    """A node in another graph, which calls the function of torch."""
    made = graph.node_copy(node, argument)
    if op_name(node) == "aten::sym_size":
        made.op, made.target = "call_method", "size"
    else:
        made.target = function_of(node.target)
    return made
