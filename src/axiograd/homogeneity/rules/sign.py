"""What is known of a divisor's sign, from the operators that made it."""

from torch import fx

from axiograd.homogeneity.rules.axes import MOVES, name_of
from axiograd.homogeneity.rules.registry import aten

_REDUCED = frozenset(aten("var std norm linalg_vector_norm linalg_norm cdist"))
_NONNEGATIVE = frozenset(aten("abs square relu sqrt"))
_MOVES = MOVES | frozenset(aten("select"))
_AVERAGES = frozenset(aten("sum mean amax avg_pool1d avg_pool2d"))
_DEPTH = 8

#: Nothing, never negative, or a statistic of many values that are never negative.
IS_NOTHING, IS_NONNEGATIVE, IS_STATISTIC = range(3)


def sign(node: object, depth: int = 0) -> int:
    """IS_NOTHING, IS_NONNEGATIVE or IS_STATISTIC."""
    if isinstance(node, int | float):
        return IS_STATISTIC if node >= 0 else IS_NOTHING
    if not isinstance(node, fx.Node) or depth >= _DEPTH:
        return IS_NOTHING
    name = name_of(node)
    if name in _REDUCED:
        return IS_STATISTIC
    if not node.args:
        return IS_NOTHING
    inner = sign(node.args[0], depth + 1)
    if name in _NONNEGATIVE or _is_even_power(node, name):
        return max(IS_NONNEGATIVE, inner)
    if name in _AVERAGES:
        return IS_STATISTIC if inner else IS_NOTHING
    if name in _MOVES:
        return inner
    if name in {"aten::add", "aten::mul", "aten::div"} and not node.kwargs:
        return min(inner, sign(node.args[1], depth + 1))
    return IS_NOTHING


def _is_even_power(node: fx.Node, name: str) -> bool:
    if name == "aten::pow":
        return isinstance(node.args[1], int | float) and node.args[1] % 2 == 0
    return name == "aten::mul" and node.args[0] is node.args[1]
