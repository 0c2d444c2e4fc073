"""Where a program hides a dependence from autograd: detach(), item() and no_grad blocks.

The closed form of Integrated Gradients needs the gradient of F, and autograd gives another one if part of F
is hidden.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

_CUTS = {"aten::detach", "aten::detach_", "aten::item", "aten::_local_scalar_dense"}


def gradient_cuts(graph: fx.Graph, scaling: set[str]) -> list[fx.Node]:
    """Nodes that depend on scaling inputs, feed an output, and cut the gradient."""
    depends: set[fx.Node] = set()
    for node in graph.nodes:
        if node.name in scaling or any(n in depends for n in node.all_input_nodes):
            depends.add(node)
    cuts = [node for node in depends if _cuts(node) and _is_floating(node)]
    if not cuts:
        return []
    needed = ancestors([node for node in graph.nodes if node.op == "output"])
    return [node for node in graph.nodes if node in cuts and node in needed]


def ancestors(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    seen: set[fx.Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += node.all_input_nodes
    return seen


def _cuts(node: fx.Node) -> bool:
    if node.op != "call_function":
        return False
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        return schema.name in _CUTS
    return str(node.target) == "wrap_with_set_grad_enabled" and node.args[0] is False


def _is_floating(node: fx.Node) -> bool:
    leaves = pytree.tree_leaves(node.meta.get("val"))
    if not leaves or any(isinstance(v, float | torch.SymFloat) for v in leaves):
        return True
    return any(isinstance(v, Tensor) and (v.is_floating_point() or v.is_complex()) for v in leaves)
