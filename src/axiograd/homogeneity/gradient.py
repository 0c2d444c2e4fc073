"""Where a program hides a dependence from autograd: detach(), item() and no_grad blocks.

The closed form of Integrated Gradients needs the gradient of F, and autograd gives another one if part of F
is hidden.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from axiograd.homogeneity.mutation import Aliases, bodies, is_plain, mutated

_CUTS = {"aten::detach", "aten::detach_", "aten::item", "aten::_local_scalar_dense"}


def gradient_cuts(graph: fx.Graph, scaling: set[str]) -> list[fx.Node]:
    """Nodes that depend on scaling inputs, feed an output, and cut the gradient."""
    aliases = Aliases(graph.nodes)
    tainted: set[fx.Node] = set()
    cuts: list[fx.Node] = []
    for node in graph.nodes:
        if not (node.name in scaling or any(aliases.root(n) in tainted for n in node.all_input_nodes)):
            continue
        tainted.add(aliases.root(node))
        # What is written in place is seen under every name of the memory.
        written = [aliases.root(target) for target in mutated(node)]
        tainted.update(written)
        if _cuts(node) and (written or _is_floating(node)):
            cuts.append(node)
        for body in bodies(node) if node not in cuts else ():
            placeholders = {n.name for n in body.graph.nodes if n.op == "placeholder"}
            cuts += gradient_cuts(body.graph, placeholders)
    if not cuts:
        return []
    if not is_plain(graph):
        # The output may see a cut through memory that it shares, not only through its arguments.
        return cuts
    needed = ancestors([node for node in graph.nodes if node.op == "output"])
    return [node for node in cuts if node in needed or node.graph is not graph]


def cut_name(node: fx.Node) -> str:
    """The cut in the user's words."""
    name = getattr(getattr(node.target, "_schema", None), "name", "")
    return "no_grad" if not name else "item" if name in {"aten::item", "aten::_local_scalar_dense"} else "detach"


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
    return any(_is_real(v) for v in leaves) or not leaves


def _is_real(value: object) -> bool:
    if isinstance(value, Tensor):
        return value.is_floating_point() or value.is_complex()
    return isinstance(value, float | torch.SymFloat)
