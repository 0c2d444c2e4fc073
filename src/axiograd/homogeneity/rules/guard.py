"""Epsilons written by hand: h + eps and max(h, eps) as divisors, h ≥ 0 of degree k > 0.

1/(h + eps) is 1/h up to eps. That is the same statement as for a normalisation layer, and holds only if h is
never negative, not zero on a whole region as a ReLU is, and the sum is used for nothing but dividing.
"""

from torch import fx

from axiograd.homogeneity.domain import Value, of_degree
from axiograd.homogeneity.rules.call import LARGEST_EPSILON, Call
from axiograd.homogeneity.rules.registry import aten

_NONNEGATIVE = frozenset(aten("var std norm linalg_vector_norm linalg_norm abs square sqrt cdist"))
_MOVES = frozenset(
    aten(
        "expand expand_as unsqueeze squeeze view reshape clone contiguous _to_copy to select slice permute "
        "transpose broadcast_to"
    )
)
_AVERAGES = frozenset(aten("sum mean amax amin avg_pool1d avg_pool2d"))
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
        if not _nonnegative(node):
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


def _nonnegative(node: fx.Node, depth: int = 0) -> bool:
    name = _name(node)
    if name in _NONNEGATIVE:
        return True
    if depth >= _DEPTH or not node.args:
        return False
    if name == "aten::pow":
        return isinstance(node.args[1], int | float) and node.args[1] % 2 == 0
    if name == "aten::mul":
        a, b = node.args
        if a is b:
            return True
        return all(_nonnegative_or_number(x, depth) for x in (a, b))
    if name in {"aten::add", "aten::div"}:
        return not node.kwargs and all(_nonnegative_or_number(x, depth) for x in node.args[:2])
    if name in _MOVES | _AVERAGES:
        return _nonnegative_or_number(node.args[0], depth)
    return False


def _nonnegative_or_number(item: object, depth: int) -> bool:
    if isinstance(item, fx.Node):
        return _nonnegative(item, depth + 1)
    return isinstance(item, int | float) and item >= 0
