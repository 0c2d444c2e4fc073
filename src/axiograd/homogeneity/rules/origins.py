"""How a value was made, read back along the graph: the same twice, never negative, a transpose."""

from typing import Any

from torch import Tensor, fx

from axiograd.homogeneity.nodes import argument, is_random, op_name, schema_of, shape_of
from axiograd.homogeneity.rules.registry import aten

_DEPTH = 10
#: Copies in another type or place of memory.
COPIES = frozenset(aten("clone contiguous _to_copy to alias"))
_NONNEGATIVE = frozenset(aten("abs square relu sqrt norm linalg_vector_norm std var"))
_TRANSPOSES = frozenset(aten("t numpy_T mT adjoint"))


def name_of(node: Any) -> str:
    """The operator's name; that of its functional twin where it works in place."""
    name = op_name(node)
    return name if name.endswith("__") else name.rstrip("_")


def sizes(node: Any) -> list[str] | None:
    """Sizes as text, because comparing symbolic ones as numbers would ask for a proof."""
    shape = shape_of(node)
    return None if shape is None else [str(size) for size in shape]


def reduced_dims(node: fx.Node, dims: int) -> set[int]:
    """The dimensions that a sum, mean, extreme, norm or variance runs over."""
    given = argument(node, "dim")
    if given is None or given == []:
        return set(range(dims))
    return {d % dims for d in ([given] if isinstance(given, int) else given)} if dims else set()


def alike(a: Any, b: Any, depth: int = 0) -> bool:
    """The same node, or the same computation written twice."""
    if a is b:
        return True
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(alike(x, y, depth + 1) for x, y in zip(a, b, strict=True))
    if not isinstance(a, fx.Node) or not isinstance(b, fx.Node):
        return type(a) is type(b) and not isinstance(a, Tensor) and bool(a == b)
    if a.op != "call_function" or b.op != a.op or a.target is not b.target or depth >= _DEPTH:
        return False
    pure = schema_of(a.target) is not None and not is_random(a)
    return pure and a.kwargs == b.kwargs and alike(a.args, b.args, depth + 1)


def nonnegative(node: Any) -> bool:
    """An operator made it that has no negative results."""
    name = name_of(node)
    if name == "aten::pow":
        return isinstance(node.args[1], int | float) and node.args[1] % 2 == 0
    if name == "aten::mul":
        return node.args[0] is node.args[1]
    return name in _NONNEGATIVE or (name in COPIES and nonnegative(node.args[0]))


def is_transpose(a: Any, b: Any) -> bool:
    """One is the other with its last two dimensions swapped, and nothing else done."""
    return (_swaps(b) and alike(b.args[0], a)) or (_swaps(a) and alike(a.args[0], b))


def _swaps(node: Any) -> bool:
    name, dims = name_of(node), len(shape_of(node) or ())
    if name == "aten::transpose":
        return {argument(node, "dim0") % dims, argument(node, "dim1") % dims} == {dims - 2, dims - 1}
    if name == "aten::permute":
        return [d % dims for d in argument(node, "dims")] == [*range(dims - 2), dims - 1, dims - 2]
    return name in _TRANSPOSES
