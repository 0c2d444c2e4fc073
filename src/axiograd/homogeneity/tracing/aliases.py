"""Does a program change tensors in place in a way that other names can see?

An in-place operator may be read as its functional twin only if nothing later looks at the old name of its
target, nor at anything that shares memory with it. Where that is not certain, the program is functionalised.
"""

from collections.abc import Iterable

import torch
from torch import fx

from axiograd.homogeneity.tracing.nodes import (
    arguments,
    attribute,
    nodes_in,
    op_name,
    placeholders,
    schema_of,
)
from axiograd.homogeneity.tracing.private_torch import is_composite, is_operator

_BATCH_NORM = "aten::batch_norm"

#: Composite operators whose result is always a new tensor.
_FRESH = """
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear matmul batch_norm
    layer_norm group_norm instance_norm rms_norm softmax log_softmax scaled_dot_product_attention max_pool1d
    max_pool2d max_pool3d upsample_bilinear2d upsample_nearest2d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d avg_pool1d silu relu6 selu celu
"""
_DROPOUT = {f"aten::{name}" for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")}
_OPAQUE = {
    f"aten::{name}"
    for name in ("atleast_1d", "atleast_2d", "atleast_3d", "cartesian_prod", "conj_physical", "unsafe_chunk")
}
_FRESH_NAMES = {f"aten::{name}" for name in _FRESH.split()}


class Aliases:
    """Which names may share memory, as far as the nodes that were added show."""

    def __init__(self, nodes: Iterable[fx.Node] = ()) -> None:
        self._parent: dict[fx.Node, fx.Node] = {}
        for node in nodes:
            self.add(node)

    def add(self, node: fx.Node) -> None:
        self._parent[node] = node
        for source in _shared(node) if node.op == "call_function" else ():
            self._parent[self.root(node)] = self.root(source)

    def root(self, node: fx.Node) -> fx.Node:
        """One name that stands for all that share the node's memory."""
        while self._parent[node] is not node:
            self._parent[node] = self._parent[self._parent[node]]
            node = self._parent[node]
        return node


def is_plain(graph: fx.Graph) -> bool:
    """True if every in-place operator of the graph can be read as its functional twin."""
    order = {node: index for index, node in enumerate(graph.nodes)}
    aliases = Aliases()
    last_use: dict[fx.Node, int] = {}
    for node in graph.nodes:
        if any(last_use[aliases.root(target)] > order[node] for target in mutated(node)):
            return False
        if any(not is_plain(body.graph) for body in bodies(node)):
            return False
        known = [aliases.root(source) for source in _shared(node)] if node.op == "call_function" else []
        aliases.add(node)
        uses = (order[user] for user in node.users)
        last_use[aliases.root(node)] = max([*uses, *(last_use[root] for root in known)], default=-1)
    return True


def read_as_functional(graph: fx.Graph) -> bool:
    """Put its functional twin in the place of each in-place operator; False, and nothing done, where others can see."""
    if not is_plain(graph):
        return False
    for node in graph.nodes:
        if node.op != "call_function" or not is_operator(node.target) or not any(mutated(node)):
            continue
        name = op_name(node).removeprefix("aten::")
        twin = getattr(getattr(torch.ops.aten, name.removesuffix("_"), None), node.target._overloadname, None)  # noqa: SLF001
        # In place, a result keeps the target's dtype; the twin's is the wider one.
        if twin is not None and {_dtype(n) for n in (node, *node.all_input_nodes)} == {_dtype(node)}:
            node.target = twin
    return True


def bodies(node: fx.Node) -> Iterable[fx.GraphModule]:
    """The programs inside a higher-order operator."""
    if node.op != "call_function" or op_name(node):
        return
    for argument in node.all_input_nodes:
        if argument.op == "get_attr" and node.graph.owning_module is not None:
            found = attribute(node.graph.owning_module, str(argument.target))
            if isinstance(found, fx.GraphModule):
                yield found


def undeclared_aliases(graph: fx.Graph) -> set[str]:
    """Names of operators that may return their argument undeclared; functionalisation must look inside."""
    targets = [node.target for node in graph.nodes if node.op == "call_function" and is_composite(node.target)]
    schemas = [schema_of(target) for target in targets]
    return {
        s.name
        for s in schemas
        if s is not None and s.name not in _FRESH_NAMES and all(r.alias_info is None for r in s.returns)
    }


def remove_idle_dropout(graph: fx.Graph) -> None:
    """Dropout in eval mode is its argument; functionalisation takes it for a copy: in-place changes get lost."""
    for node in list(graph.nodes):
        if op_name(node).rstrip("_") in _DROPOUT and node.args[2] is False:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


class HiddenAliasError(RuntimeError):
    """An in-place change that other names may or may not see."""


def refuse_hidden_aliases(names: set[str]) -> None:
    """Operators that functionalisation cannot look inside, beside in-place changes that need it."""
    opaque = sorted(names & _OPAQUE)
    if opaque:
        raise HiddenAliasError(f"a tensor that {', '.join(opaque)} may share is changed in place.")


def mutated(node: fx.Node) -> Iterable[fx.Node]:
    """Call that the operator writes into."""
    if node.op != "call_function":
        return
    schema = schema_of(node.target)
    if schema is None:
        for body in bodies(node):
            yield from _operands(node, body.graph, _written(body.graph))
        return
    if schema.name == _BATCH_NORM and node.args[5] is True:
        # Undeclared in the schema: training updates the running statistics.
        yield from (a for a in node.args[3:5] if isinstance(a, fx.Node))
    for argument, value in arguments(node):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from nodes_in(value)


def _written(graph: fx.Graph) -> set[fx.Node]:
    """Placeholders of a body that it writes into."""
    aliases = Aliases(graph.nodes)
    return _placeholders_behind(graph, aliases, (t for node in graph.nodes for t in mutated(node)))


def _returned(graph: fx.Graph) -> set[fx.Node]:
    """Placeholders of a body whose memory its results may share."""
    aliases = Aliases(graph.nodes)
    results = (n for node in graph.nodes if node.op == "output" for n in node.all_input_nodes)
    return _placeholders_behind(graph, aliases, results)


def _placeholders_behind(graph: fx.Graph, aliases: Aliases, nodes: Iterable[fx.Node]) -> set[fx.Node]:
    roots = {aliases.root(node) for node in nodes}
    return {node for node in placeholders(graph) if aliases.root(node) in roots}


def _operands(node: fx.Node, body: fx.Graph, chosen: set[fx.Node]) -> list[fx.Node]:
    """What a higher-order operator passes to these placeholders of its body; all it has, if any, where that is unclear.

    A no_grad or autocast block is called with (what it sets, its body, *what the body is given).
    """
    inner = placeholders(body)
    given = list(node.args[len(node.args) - len(inner) :])
    if str(node.target).startswith("wrap_with_") and all(isinstance(n, fx.Node) and n.op != "get_attr" for n in given):
        return [n for p, n in zip(inner, given, strict=False) if p in chosen and isinstance(n, fx.Node)]
    return [n for n in node.all_input_nodes if n.op != "get_attr"] if chosen else []


def _shared(node: fx.Node) -> Iterable[fx.Node]:
    """Call whose memory the result may share."""
    schema = schema_of(node.target)
    if schema is None:
        inside = list(bodies(node))
        if not inside or not str(node.target).startswith("wrap_with_"):
            return node.all_input_nodes
        return [n for body in inside for n in _operands(node, body.graph, _returned(body.graph))]
    if schema.name in _FRESH_NAMES or isinstance(node.meta.get("val"), int | torch.SymInt):
        return ()
    if is_composite(node.target):
        # A result of another dtype is a new tensor; operators that read bits as another dtype declare it.
        return [n for n in node.all_input_nodes if _dtype(n) in {None, _dtype(node)} or _dtype(node) is None]
    return [n for argument, value in arguments(node) if argument.alias_info is not None for n in nodes_in(value)]


def _dtype(node: fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None
