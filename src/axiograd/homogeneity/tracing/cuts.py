"""Where a program hides a dependence from autograd: detach(), item(), no_grad blocks, operators without a derivative.

The closed form of Integrated Gradients needs the gradient of F, and autograd gives another one if part of F
is hidden.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from axiograd.homogeneity.tracing.aliases import Aliases, bodies, mutated
from axiograd.homogeneity.tracing.nodes import argument, is_real, nodes_in, op_name, placeholders, schema_of
from axiograd.homogeneity.tracing.private_torch import is_operator

_CUTS = {"aten::detach", "aten::detach_", "aten::item", "aten::_local_scalar_dense"}
#: Nothing but the shape of an argument counts.
_SHAPE_ONLY = {f"aten::{kind}_like" for kind in ("zeros", "ones", "full", "empty", "rand", "randn", "randint")}
_SHAPE_ONLY |= {f"aten::new_{kind}" for kind in ("zeros", "ones", "full", "empty", "empty_strided")}
#: Call that lend their shape or type, are overwritten, or are only kept up to date.
_UNREAD = {"other": {"expand_as", "view_as", "reshape_as", "type_as", "to"}, "self": {"copy", "fill", "zero"}}
#: Autograd gives zero to what these depend on, or torch's function for them does not ask it.
_CARELESS = {"aten::normal", "aten::binomial", "aten::linspace", "aten::logspace"}
#: Whether the results of an operator carry the gradient of one of its arguments.
_carried: dict[tuple[Any, ...], tuple[bool, ...]] = {}


def gradient_cuts(graph: fx.Graph, scaling: set[str]) -> list[fx.Node]:
    """Nodes that depend on scaling inputs, feed an output, and cut the gradient."""
    aliases = Aliases(graph.nodes)
    #: Names of values that depend on scaling inputs, and memory that such a value was written into. That two names may
    #: share memory does not make one depend on the other before something is written there.
    tainted: set[fx.Node] = set()
    stained: set[fx.Node] = set()
    #: Each cut, and the node of this graph that it is or lies in.
    cuts: list[tuple[fx.Node, fx.Node]] = []
    for node in graph.nodes:
        moving = {n for n in node.all_input_nodes if n in tainted or aliases.root(n) in stained}
        if (node.name not in scaling and not moving) or op_name(node) in _SHAPE_ONLY:
            continue
        # What is written in place is seen under every name of the memory.
        written = [aliases.root(target) for target in mutated(node)]
        stained.update(written)
        if not _is_floating(node) and not written:
            continue
        tainted.add(node)
        if _cuts(node) or _loses(node, moving):
            cuts.append((node, node))
            continue
        for body in bodies(node):
            cuts += [(inside, node) for inside in gradient_cuts(body.graph, _operands(node, body, moving))]
    needed = _needed(graph, aliases) if cuts else set()
    return [cut for cut, owner in cuts if owner in needed]


def _operands(node: fx.Node, body: fx.GraphModule, moving: set[fx.Node]) -> set[str]:
    """Names inside a body of what moves outside; operands come last."""
    inner = placeholders(body.graph)
    given = pytree.tree_leaves(node.args)[-len(inner) :] if inner else []
    return {inside.name for inside, outside in zip(inner, given, strict=True) if outside in moving}


def _loses(node: fx.Node, moving: set[fx.Node]) -> bool:
    """A result that is used depends on an argument without carrying its gradient."""
    if not is_operator(node.target):
        return False
    schema = schema_of(node.target)
    if schema.name in _CARELESS:
        return True
    used = _used(node)
    for place, (one, given) in enumerate(zip(schema.arguments, node.args, strict=False)):
        if one.name.startswith("running_") and given in moving and not is_training(node):
            return True
        tensors = [n for n in nodes_in(given) if n in moving and isinstance(n.meta.get("val"), Tensor)]
        if any(_is_floating(n) for n in tensors) and not _is_unread(node, one.name):
            carries = _carries(node, place)
            if any(i < len(carries) and not carries[i] for i in used):
                return True
    return False


def _is_unread(node: fx.Node, argument: str) -> bool:
    name = op_name(node).removeprefix("aten::").rstrip("_")
    if argument.startswith("running_"):
        return is_training(node)
    return name in _UNREAD.get(argument, ())


def is_training(node: fx.Node) -> bool:
    """A batch norm that reads the batch's own statistics."""
    if "_norm" not in op_name(node):
        return False
    return any(argument(node, name) is True for name in ("training", "use_input_stats"))


def _used(node: fx.Node) -> list[int]:
    """Which results are read."""
    if not isinstance(node.meta.get("val"), list | tuple):
        return [0]
    return [user.args[1] for user in node.users if isinstance(user.args[1], int)]


def _carries(node: fx.Node, place: int) -> tuple[bool, ...]:
    """Per result, whether autograd connects it with an argument; found by asking autograd, on tensors without data."""
    flags = tuple(a for a in node.args if isinstance(a, bool))
    key = (node.target, place, flags)
    if key not in _carried:
        _carried[key] = _ask(node, place)
    return _carried[key]


def _ask(node: fx.Node, place: int) -> tuple[bool, ...]:
    # Below an operator that autograd passes by, tensors without data would show the parts that it is made of.
    passed_by = node.target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeExplicitAutograd)  # type: ignore[union-attr]  # noqa: SLF001

    def value(item: Any, *, attached: bool) -> Any:
        item = item.meta.get("val") if isinstance(item, fx.Node) else item
        if isinstance(item, Tensor):
            item = _real_like(item) if passed_by else item.detach().clone()
            return item.requires_grad_().clone() if attached and is_real(item) else item
        return item

    try:
        with torch.enable_grad(), torch.random.fork_rng():
            args = [
                pytree.tree_map(lambda item, i=i: value(item, attached=i == place), argument)
                for i, argument in enumerate(node.args)
            ]
            kwargs = pytree.tree_map(lambda item: value(item, attached=False), node.kwargs)
            results = node.target(*args, **kwargs)  # type: ignore[operator]
    except Exception:  # noqa: BLE001 - what cannot be asked is left to the numerical test
        return ()
    results = results if isinstance(results, list | tuple) else [results]
    return tuple(not isinstance(r, Tensor) or not is_real(r) or _has_derivative(r) for r in results)


def _has_derivative(result: Tensor) -> bool:
    """Autograd is connected with a result, and not by a node that does nothing but raise."""
    return result.requires_grad and (result.grad_fn is None or not result.grad_fn.name().endswith("NotImplemented"))


def _real_like(value: Tensor) -> Tensor:
    """Zeros of the same shape, of which one number is in memory."""
    sizes: list[Any] = list(value.shape)
    shape = [size if isinstance(size, int) else size.node.hint for size in sizes]
    return torch.zeros((), dtype=value.dtype).expand(shape)


def _needed(graph: fx.Graph, aliases: Aliases) -> set[fx.Node]:
    """Nodes that an output depends on, through arguments or through memory that was written before it was read."""
    needed: set[fx.Node] = set()
    read: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or aliases.root(node) in read or any(aliases.root(t) in read for t in mutated(node)):
            needed.add(node)
            read.update(aliases.root(source) for source in node.all_input_nodes)
    return needed


def cut_name(node: fx.Node) -> str:
    """The cut in the user's words."""
    name = op_name(node)
    if name.startswith("aten::detach"):
        return "detach"
    return "no_grad" if not name else "item" if name in _CUTS else name.replace("::", ".")


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
    if op_name(node):
        return op_name(node) in _CUTS
    return str(node.target) == "wrap_with_set_grad_enabled" and node.args[0] is False


def _is_floating(node: fx.Node) -> bool:
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return any(is_real(v) for v in leaves) or not leaves
