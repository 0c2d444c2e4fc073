"""Epsilons written by hand: h + eps and max(h, eps) as divisors, h ≥ 0 of degree k > 0.

1/(h + eps) is 1/h up to eps. That is the same statement as for a normalisation layer, and holds only if h is
never negative, not zero on a whole region as a ReLU is, and the sum is used for nothing but dividing.
"""

from torch import fx

from axiograd.homogeneity.domain import Value, of_degree
from axiograd.homogeneity.rules.call import LARGEST_EPSILON, Call
from axiograd.homogeneity.rules.registry import aten

_REDUCED = frozenset(aten("var std norm linalg_vector_norm linalg_norm cdist"))
_NONNEGATIVE = frozenset(aten("abs square relu sqrt"))
_MOVES = frozenset(
    aten(
        "expand expand_as unsqueeze squeeze view reshape clone contiguous _to_copy to select slice permute "
        "transpose broadcast_to"
    )
)
_AVERAGES = frozenset(aten("sum mean amax avg_pool1d avg_pool2d"))
_DEPTH = 8


def guards(call: Call, a: Value, b: Value) -> Value | None:
    """The degree of a guarded divisor, or None if this is not one."""
    for value, eps, node in ((a, b, _argument(call, 0)), (b, a, _argument(call, 1))):
        if (
            value.is_constant
            or value.degree is None
            or value.degree <= 0
            or not eps.is_constant
            or eps.constant is None
        ):
            continue
        if node is None or _name(call.node) in {"aten::sub", "aten::rsub"} or not _divides(call.node):
            continue
        if _kind(node) < _IS_REDUCED:
            continue
        size = eps.constant.uniform()
        if size is not None and 0 < size <= LARGEST_EPSILON:
            call.epsilon(size)
            return of_degree(value.degree)
    return None


def _argument(call: Call, index: int) -> fx.Node | None:
    if index >= len(call.node.args):
        return None
    node = call.node.args[index]
    return node if isinstance(node, fx.Node) else None


def _name(node: fx.Node) -> str:
    schema = getattr(node.target, "_schema", None)
    return schema.name.rstrip("_") if schema is not None else ""


def _divides(node: fx.Node, depth: int = 0) -> bool:
    """Every use of the node is as a divisor."""
    return bool(node.users) and depth < _DEPTH and all(_divides_in(user, node, depth) for user in node.users)


def _divides_in(user: fx.Node, node: fx.Node, depth: int) -> bool:
    name = _name(user)
    if name in {"aten::rsqrt", "aten::reciprocal"}:
        return True
    if name == "aten::div":
        return user.args[1] is node and user.args[0] is not node
    if name == "aten::pow":
        return user.args[0] is node and isinstance(user.args[1], int | float) and user.args[1] < 0
    if name == "aten::sqrt" or name in _MOVES:
        return _divides(user, depth + 1)
    return False


#: What is known about a divisor: nothing, never negative, or a statistic of many values that are never negative.
_IS_NOTHING, _IS_NONNEGATIVE, _IS_REDUCED = range(3)


def _kind(node: object, depth: int = 0) -> int:
    if isinstance(node, int | float):
        return _IS_REDUCED if node >= 0 else _IS_NOTHING
    if not isinstance(node, fx.Node) or depth >= _DEPTH:
        return _IS_NOTHING
    name = _name(node)
    if name in _REDUCED:
        return _IS_REDUCED
    if not node.args:
        return _IS_NOTHING
    inner = _kind(node.args[0], depth + 1)
    if name in _NONNEGATIVE or _is_even_power(node, name):
        return max(_IS_NONNEGATIVE, inner)
    if name in _AVERAGES:
        return _IS_REDUCED if inner else _IS_NOTHING
    if name in _MOVES:
        return inner
    if name in {"aten::add", "aten::mul", "aten::div"} and not node.kwargs:
        return min(inner, _kind(node.args[1], depth + 1))
    return _IS_NOTHING


def _is_even_power(node: fx.Node, name: str) -> bool:
    if name == "aten::pow":
        return isinstance(node.args[1], int | float) and node.args[1] % 2 == 0
    return name == "aten::mul" and node.args[0] is node.args[1]
