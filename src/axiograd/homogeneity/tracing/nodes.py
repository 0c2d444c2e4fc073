"""What a node of a program is: its operator's name and schema, its arguments, the shape and kind of its value."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree


def schema_of(target: Any) -> Any:
    """The schema of an operator; None for what is not one of torch's."""
    return getattr(target, "_schema", None)


def op_name(node: Any) -> str:
    """As "aten::add"; empty where the node calls no operator of torch's."""
    schema = schema_of(getattr(node, "target", None))
    return "" if schema is None else str(schema.name)


def title(target: Any) -> str:
    """As "aten.add", or the name of what is called."""
    schema = schema_of(target)
    return str(getattr(target, "__name__", target)) if schema is None else str(schema.name).replace("::", ".")


def arguments(node: fx.Node) -> Iterator[tuple[Any, Any]]:
    """Each argument that is given, with what the schema says of it."""
    known = schema_of(node.target).arguments
    yield from zip(known, node.args, strict=False)
    for one in known[len(node.args) :]:
        if one.name in node.kwargs:
            yield one, node.kwargs[one.name]


def argument(node: fx.Node, name: str, default: Any = None) -> Any:
    """An argument by its name in the operator's schema."""
    if schema_of(node.target) is None:
        return default
    given = next((value for one, value in arguments(node) if one.name == name), None)
    return default if given is None else given


def nodes_in(item: Any) -> list[fx.Node]:
    """The nodes in an argument, however deep."""
    return [leaf for leaf in pytree.tree_leaves(item) if isinstance(leaf, fx.Node)]


def placeholders(graph: fx.Graph) -> list[fx.Node]:
    """The inputs of a graph, in order."""
    return [node for node in graph.nodes if node.op == "placeholder"]


def attribute(owner: Any, path: str) -> Any:
    """What stands at a dotted path below a module; None where nothing does."""
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner


def shape_of(node: Any) -> tuple[Any, ...] | None:
    """Sizes of a node that is a tensor, some of them symbols; None for anything else."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return tuple(value.shape) if isinstance(value, Tensor) else None


def is_random(node: fx.Node) -> bool:
    """Whether the node draws from a generator."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def is_real(value: object) -> bool:
    """A number, or a tensor of numbers, that autograd can follow."""
    if isinstance(value, Tensor):
        return value.is_floating_point() or value.is_complex()
    return isinstance(value, float | torch.SymFloat)
