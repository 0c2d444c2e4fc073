"""Where a program hides a dependence from autograd: detach(), item(), no_grad blocks, operators without a derivative.

The closed form of Integrated Gradients needs the gradient of F, and autograd gives another one if part of F is hidden.
"""

from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from axiograd.homogeneity.nodes import (
    Memory,
    bodies,
    is_operator,
    is_real,
    is_training,
    nodes_in,
    op_name,
    placeholders,
    schema_of,
    with_bodies,
    written,
)

_CUTS = {"aten::detach", "aten::detach_", "aten::item", "aten::_local_scalar_dense"}
#: Nothing but the shape of an argument counts.
_SHAPE_ONLY = {f"aten::{kind}_like" for kind in ("zeros", "ones", "full", "empty", "rand", "randn", "randint")}
_SHAPE_ONLY |= {f"aten::new_{kind}" for kind in ("zeros", "ones", "full", "empty", "empty_strided")}
#: Arguments that lend their shape or type, or are overwritten.
_UNREAD = {"other": {"expand_as", "view_as", "reshape_as", "type_as", "to"}, "self": {"copy", "fill", "zero"}}
#: Autograd gives zero to what these depend on, or torch's function for them does not ask it.
_CARELESS = {"aten::normal", "aten::binomial", "aten::linspace", "aten::logspace"}
#: Whether the results of an operator carry the gradient of one of its arguments.
_carried: dict[tuple[Any, ...], tuple[bool, ...]] = {}


def gradient_cuts(graph: fx.Graph, scaling: set[str]) -> list[fx.Node]:
    """Nodes that depend on scaling inputs, feed an output, and cut the gradient."""
    memory = Memory(graph)
    walk = _Walk(memory)
    walk.run(graph, scaling)
    if not walk.cuts:
        return []
    needed = _needed(graph, memory)
    return [cut for cut, owner in walk.cuts if owner in needed]


class _Walk:
    """From the inputs on: which values depend on them, and which memory such a value was written into."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.tainted: set[fx.Node] = set()
        self.stained: set[int] = set()
        #: Each cut, and the node of the outermost graph that it is or lies in.
        self.cuts: list[tuple[fx.Node, fx.Node]] = []

    def run(self, graph: fx.Graph, scaling: set[str], owner: fx.Node | None = None) -> None:
        for node in graph.nodes:
            moving = {n for n in node.all_input_nodes if n in self.tainted or self.memory.of(n) & self.stained}
            if (node.name not in scaling and not moving) or op_name(node) in _SHAPE_ONLY:
                continue
            outside = len(self.cuts)
            for body in bodies(node):
                self.run(body.graph, _operands(node, body, moving), owner or node)
            targets = written(node)
            self.stained |= self.memory.of(*targets)
            if not _is_floating(node) and not targets:
                continue
            self.tainted.add(node)
            if _cuts(node) or _loses(node, moving):
                self.cuts[outside:] = [(node, owner or node)]  # a block that is cut off as a whole is one cut


def _operands(node: fx.Node, body: fx.GraphModule, moving: set[fx.Node]) -> set[str]:
    """Names inside a body of what moves outside; operands come last."""
    inner = placeholders(body.graph)
    given = pytree.tree_leaves(node.args)[-len(inner) :] if inner else []
    return {inside.name for inside, outside in zip(inner, given, strict=True) if outside in moving}


def _needed(graph: fx.Graph, memory: Memory) -> set[fx.Node]:
    """Nodes that an output depends on, through arguments or through memory that was written before it was read."""
    needed: set[fx.Node] = set()
    read: set[int] = set()
    for node in reversed(graph.nodes):
        inside = [target for body in bodies(node) for one in with_bodies(body.graph) for target in written(one)]
        if node.op == "output" or node in needed or memory.of(*written(node), *inside) & read:
            needed.update((node, *node.all_input_nodes))
            read |= memory.of(*node.all_input_nodes)
    return needed


def _cuts(node: fx.Node) -> bool:
    if op_name(node):
        return op_name(node) in _CUTS
    return str(node.target) == "wrap_with_set_grad_enabled" and node.args[0] is False


def _loses(node: fx.Node, moving: set[fx.Node]) -> bool:
    """A result that is used depends on an argument without carrying its gradient."""
    if not is_operator(node.target):
        return False
    schema = schema_of(node.target)
    if schema.name in _CARELESS:
        return True
    several = isinstance(node.meta.get("val"), list | tuple)
    used = [user.args[1] for user in node.users] if several else [0]
    for place, (one, given) in enumerate(zip(schema.arguments, node.args, strict=False)):
        if one.name.startswith("running_"):
            if given in moving and not is_training(node):
                return True
            continue
        tensors = [n for n in nodes_in(given) if n in moving and isinstance(n.meta.get("val"), Tensor)]
        if any(_is_floating(n) for n in tensors) and not _is_unread(node, one.name):
            carries = _carries(node, place)
            if any(isinstance(i, int) and i < len(carries) and not carries[i] for i in used):
                return True
    return False


def _is_unread(node: fx.Node, argument: str) -> bool:
    return op_name(node).removeprefix("aten::").rstrip("_") in _UNREAD.get(argument, ())


def _carries(node: fx.Node, place: int) -> tuple[bool, ...]:
    """Per result, whether autograd connects it with an argument; found by asking autograd, on tensors without data."""
    key = (node.target, place, tuple(a for a in node.args if isinstance(a, bool)))
    if key not in _carried:
        _carried[key] = _ask(node, place)
    return _carried[key]


def _ask(node: fx.Node, place: int) -> tuple[bool, ...]:
    # Below an operator that autograd passes by, tensors without data would show the parts that it is made of.
    passed_by = node.target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeExplicitAutograd)  # type: ignore[union-attr]  # noqa: SLF001

    def value(item: Any, *, attached: bool) -> Any:
        item = item.meta.get("val") if isinstance(item, fx.Node) else item
        if not isinstance(item, Tensor):
            return item
        item = _zeros_like(item) if passed_by else item.detach().clone()
        return item.requires_grad_().clone() if attached and is_real(item) else item

    try:
        with torch.inference_mode(mode=False), torch.enable_grad(), torch.random.fork_rng():
            args = [
                pytree.tree_map(lambda item, i=i: value(item, attached=i == place), argument)
                for i, argument in enumerate(node.args)
            ]
            kwargs = pytree.tree_map(lambda item: value(item, attached=False), node.kwargs)
            results = node.target(*args, **kwargs)  # type: ignore[operator]
    except Exception:  # noqa: BLE001 - what cannot be asked is left to the numerical check
        return ()
    results = results if isinstance(results, list | tuple) else [results]
    return tuple(not isinstance(r, Tensor) or not is_real(r) or _has_derivative(r) for r in results)


def _has_derivative(result: Tensor) -> bool:
    """Autograd is connected with a result, and not by a node that does nothing but raise."""
    return result.requires_grad and (result.grad_fn is None or not result.grad_fn.name().endswith("NotImplemented"))


def _zeros_like(value: Tensor) -> Tensor:
    """Zeros of the same shape, of which one number is in memory."""
    sizes: list[Any] = list(value.shape)
    shape = [size if isinstance(size, int) else size.node.hint for size in sizes]
    return torch.zeros((), dtype=value.dtype).expand(shape)


def _is_floating(node: fx.Node) -> bool:
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return any(is_real(v) for v in leaves) or not leaves


def cut_name(node: fx.Node) -> str:
    """The cut in the user's words."""
    name = op_name(node)
    if name.startswith("aten::detach"):
        return "detach"
    return "no_grad" if not name else "item" if name in _CUTS else name.replace("::", ".")
