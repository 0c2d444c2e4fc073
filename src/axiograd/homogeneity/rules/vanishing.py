"""Where a divisor is zero, what it divides is zero too: then h + eps in its place changes nothing there.

Otherwise N/(h + eps) is N/eps wherever h = 0, of the degree of N; and a statistic of ReLUs is zero on a whole region.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torch import fx

from axiograd.homogeneity.nodes import argument
from axiograd.homogeneity.rules.axes import (
    MOVES,
    Labels,
    aligned,
    alike,
    moved,
    name_of,
    reduced,
    reduced_dims,
    sizes,
    widened,
)
from axiograd.homogeneity.rules.registry import aten
from axiograd.homogeneity.rules.sign import sign

_DEPTH = 10
#: Zero exactly where their argument is.
_FAITHFUL = frozenset(aten("abs neg square sqrt"))
#: Zero where their argument is.
_THROUGH_ZERO = _FAITHFUL | frozenset(aten("relu leaky_relu dropout"))
_SUMS = frozenset(aten("sum mean"))
#: Of values that are never negative, or of their sizes: zero where all of them are.
_STATISTICS = _SUMS | frozenset(aten("amax norm linalg_vector_norm"))
_SPREADS = frozenset(aten("var std"))
_PRODUCTS = frozenset(aten("matmul bmm linear"))


@dataclass(frozen=True)
class Zero:
    """Zero where the divisor is, entry by entry: `origin`, or if `centred`, origin − mean(origin) over those dims."""

    origin: fx.Node
    #: Of the divisor, by dimensions of the origin.
    labels: Labels
    centred: frozenset[int] | None = None


def harmless(guarded: fx.Node, statistic: fx.Node) -> bool:
    """Every use of the guarded statistic divides what is zero where the statistic is."""
    if sizes(statistic) != sizes(guarded):
        return False
    cases = _zeros(statistic)
    return bool(cases) and all(_covered(guarded, zeros, inverse=False) for zeros in cases)


def _zeros(node: fx.Node, depth: int = 0) -> list[list[Zero]]:
    """What is zero where `node` is: everything in one of the lists."""
    shape = sizes(node)
    if shape is None:
        return []
    itself = Zero(node, tuple(range(len(shape))))
    below = _zeros_below(node, depth + 1) if depth < _DEPTH else []
    return [[itself, *zeros] for zeros in below] or [[itself]]


def _zeros_below(node: fx.Node, depth: int) -> list[list[Zero]]:
    name, first = name_of(node), node.args[0] if node.args else None
    if not isinstance(first, fx.Node) or sizes(first) is None:
        return []
    if name in _SPREADS:
        dims = len(sizes(first) or ())
        return [[Zero(first, reduced(node, tuple(range(dims))), reduced_dims(node, dims))]]
    if name in _STATISTICS:
        cases = _zeros(first, depth)
        # Of many products, each has a zero factor of its own.
        if not _is_statistic(node, name, first) or len(cases) > 1:
            return []
        return _through(node, name, cases)
    if name in _FAITHFUL or name in MOVES or _is_root(node, name) or _is_multiple(node, name):
        return _through(node, name, _zeros(first, depth))
    second = node.args[1] if len(node.args) > 1 else None
    if name not in {"aten::mul", "aten::add"} or not isinstance(second, fx.Node) or sizes(second) is None:
        return []
    one, other = _through(node, name, _zeros(first, depth)), _through(node, name, _zeros(second, depth))
    if name == "aten::mul":
        return one if first is second else one + other
    return [a + b for a in one for b in other] if sign(first) and sign(second) and not node.kwargs else []


def _through(node: fx.Node, name: str, cases: list[list[Zero]]) -> list[list[Zero]]:
    """What is known of an argument, seen from the result; nothing if a view mixes its dimensions."""
    dims = len(sizes(node) or ())
    found = []
    for zeros in cases:
        seen = []
        for zero in zeros:
            labels: Labels | None = zero.labels
            if name in MOVES:
                labels = moved(node, zero.labels)
            elif name in _STATISTICS:
                labels = reduced(node, zero.labels)
            if labels is not None:
                seen.append(Zero(zero.origin, widened(labels, dims), zero.centred))
        found.append(seen)
    return found


def _is_statistic(node: fx.Node, name: str, of: fx.Node) -> bool:
    if name not in {"aten::norm", "aten::linalg_vector_norm"}:
        return bool(sign(of))
    order = argument(node, "ord", argument(node, "p", 2))
    return isinstance(order, int | float) and order > 0


def _is_root(node: fx.Node, name: str) -> bool:
    return name == "aten::pow" and isinstance(node.args[1], int | float) and node.args[1] > 0


def _is_multiple(node: fx.Node, name: str) -> bool:
    factor = node.args[1] if name in {"aten::mul", "aten::div"} else None
    return isinstance(factor, int | float) and 0 < abs(factor) < math.inf


def _covered(node: fx.Node, zeros: list[Zero], *, inverse: bool, depth: int = 0) -> bool:
    """Every use of a divisor (or, if `inverse`, of a factor 1/h) leads to something that is zero where h is."""
    if not node.users or depth >= _DEPTH:
        return False
    return all(_covers(user, node, zeros, inverse=inverse, depth=depth) for user in node.users)


def _covers(user: fx.Node, node: fx.Node, zeros: list[Zero], *, inverse: bool, depth: int) -> bool:
    name = name_of(user)
    if name == "aten::sqrt":
        return _covered(user, zeros, inverse=inverse, depth=depth + 1)
    if name in {"aten::rsqrt", "aten::reciprocal"}:
        return not inverse and _covered(user, zeros, inverse=True, depth=depth + 1)
    if name == "aten::pow" and user.args[0] is node and isinstance(user.args[1], int | float):
        turned = user.args[1] < 0
        return not (inverse and turned) and _covered(user, zeros, inverse=inverse or turned, depth=depth + 1)
    if name in MOVES:
        (seen,) = _through(user, name, [zeros])
        return _covered(user, seen, inverse=inverse, depth=depth + 1)
    if name not in {"aten::div", "aten::mul"} or user.args[0] is user.args[1] or argument(user, "rounding_mode"):
        return False
    position = user.args.index(node)
    other = user.args[1 - position]
    if (name == "aten::div" and position == 1) == inverse:
        return False
    if not (name == "aten::div" and position == 0) and any(
        aligned(labels, zero.labels) for zero in zeros for labels in _ways(other, zero, 0)
    ):
        return True
    (seen,) = _through(user, "", [zeros])
    return _covered(user, seen, inverse=True, depth=depth + 1)


def _ways(node: object, zero: Zero, depth: int) -> Iterator[Labels]:
    """Labels of a node that is zero where the origin is, in each way that this can be seen."""
    shape = sizes(node) if isinstance(node, fx.Node) else None
    if not isinstance(node, fx.Node) or shape is None or depth >= _DEPTH:
        return
    if _is_origin(node, zero):
        yield tuple(range(len(shape)))
    yield from (widened(labels, len(shape)) for labels in _ways_below(node, zero, depth + 1))


def _ways_below(node: fx.Node, zero: Zero, depth: int) -> Iterator[Labels]:
    name = name_of(node)
    if name in MOVES:
        seen = (moved(node, labels) for labels in _ways(node.args[0], zero, depth))
        yield from (labels for labels in seen if labels is not None)
    elif name in _THROUGH_ZERO or _is_root(node, name) or (name == "aten::div" and not argument(node, "rounding_mode")):
        yield from _ways(node.args[0], zero, depth)
    elif name == "aten::mul":
        yield from _ways(node.args[0], zero, depth)
        yield from _ways(node.args[1], zero, depth)
    elif name in {"aten::add", "aten::sub"}:
        dims = len(sizes(node) or ())
        second = {widened(labels, dims) for labels in _ways(node.args[1], zero, depth)}
        yield from (labels for labels in _ways(node.args[0], zero, depth) if widened(labels, dims) in second)
    elif name in _SUMS:
        for labels in _ways(node.args[0], zero, depth):
            if _summed(labels, reduced_dims(node, len(labels)), zero):
                yield reduced(node, labels)
    elif name in _PRODUCTS and argument(node, "bias") is None:
        yield from _rows(node, zero, len(sizes(node) or ()), depth)


def _rows(node: fx.Node, zero: Zero, dims: int, depth: int) -> Iterator[Labels]:
    """Rows of a matrix product whose left factor has zero rows."""
    for labels in _ways(node.args[0], zero, depth):
        if len(labels) == dims and dims > 1 and _summed(labels, frozenset({dims - 1}), zero):
            yield (*labels[:-1], None)


def _summed(labels: Labels, over: frozenset[int], zero: Zero) -> bool:
    """A sum over these dimensions runs over entries that are all zero at once: one divisor stands for all of them."""
    return all(labels[d] is None or labels[d] not in zero.labels for d in over)


def _is_origin(node: fx.Node, zero: Zero) -> bool:
    if zero.centred is None:
        return alike(node, zero.origin)
    if name_of(node) != "aten::sub" or node.kwargs or not alike(node.args[0], zero.origin):
        return False
    mean = node.args[1]
    if not isinstance(mean, fx.Node) or name_of(mean) != "aten::mean" or not alike(mean.args[0], zero.origin):
        return False
    dims = len(sizes(zero.origin) or ())
    whole = zero.centred == frozenset(range(dims))
    kept = argument(mean, "keepdim", default=False) or whole
    return kept and reduced_dims(mean, dims) == zero.centred
