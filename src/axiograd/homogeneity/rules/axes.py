"""Which dimension of one tensor is which of another, when views, sums and norms lie between them.

Labels name, for each dimension of a tensor, the dimension of an origin along which it runs; None: along none.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, fx

from axiograd.homogeneity.nodes import argument, is_operator, is_random, op_name, shape_of
from axiograd.homogeneity.rules.registry import aten

_DEPTH = 10
Labels = tuple[int | None, ...]

_SAME = frozenset(aten("clone contiguous _to_copy to alias"))
_WIDER = frozenset(aten("expand expand_as broadcast_to"))
_RESHAPED = frozenset(aten("view reshape _unsafe_view squeeze unsqueeze"))
#: A slice counts if it takes all.
MOVES = frozenset({"aten::slice"}) | _SAME | _WIDER | _RESHAPED | frozenset(aten("permute transpose"))


def name_of(node: fx.Node) -> str:
    """The operator's name; that of its functional twin where it works in place."""
    return op_name(node).rstrip("_")


def sizes(node: fx.Node) -> tuple[str, ...] | None:
    """Sizes as text, because comparing symbolic ones as numbers would ask for a proof."""
    shape = shape_of(node)
    return None if shape is None else tuple(map(str, shape))


def widened(labels: Labels, dims: int) -> Labels:
    """Labels after broadcasting to more dimensions, which are new ones in front."""
    return (None,) * (dims - len(labels)) + labels


def moved(node: fx.Node, labels: Labels) -> Labels | None:
    """Labels of a view or copy from those of its argument; None: the view mixes dimensions."""
    name, shape, before = name_of(node), sizes(node), sizes(node.args[0])  # type: ignore[arg-type]  # a tensor comes first
    if shape is None or before is None or len(before) != len(labels):
        return None
    if name in _SAME or name == "aten::slice":
        return labels if shape == before else None
    if name in _WIDER:
        return widened(labels, len(shape))
    if name in _RESHAPED:
        return _reshaped(labels, before, shape)
    if name == "aten::permute":
        return tuple(labels[d] for d in argument(node, "dims"))
    if name == "aten::transpose" and isinstance(argument(node, "dim0"), int):
        swapped = list(labels)
        a, b = argument(node, "dim0"), argument(node, "dim1")
        swapped[a], swapped[b] = swapped[b], swapped[a]
        return tuple(swapped)
    return None


def _reshaped(labels: Labels, before: Sequence[str], after: Sequence[str]) -> Labels | None:
    """A view that only adds or drops dimensions of size 1."""
    left = [(size, label) for size, label in zip(before, labels, strict=True) if size != "1"]
    if [size for size, _ in left] != [size for size in after if size != "1"]:
        return None
    kept = iter(left)
    return tuple(None if size == "1" else next(kept)[1] for size in after)


def reduced_dims(node: fx.Node, dims: int) -> frozenset[int]:
    """The dimensions that a sum, mean, extreme, norm or variance runs over."""
    given = argument(node, "dim")
    if given is None or given == []:
        return frozenset(range(dims))
    return frozenset(d % dims for d in ([given] if isinstance(given, int) else given)) if dims else frozenset()


def reduced(node: fx.Node, labels: Labels) -> Labels:
    """Labels after a reduction."""
    over = reduced_dims(node, len(labels))
    if argument(node, "keepdim", default=False):
        return tuple(None if d in over else label for d, label in enumerate(labels))
    return tuple(label for d, label in enumerate(labels) if d not in over)


def aligned(labels: Labels, divisor: Labels) -> bool:
    """Each entry meets the divisor that was made from its own place in the origin."""
    dims = max(len(labels), len(divisor))
    pairs = zip(widened(labels, dims), widened(divisor, dims), strict=True)
    return all(d is None or d == label for label, d in pairs)


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
    return is_operator(a.target) and not is_random(a) and alike(a.args, b.args, depth + 1) and a.kwargs == b.kwargs
