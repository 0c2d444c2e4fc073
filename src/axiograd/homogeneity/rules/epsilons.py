"""Epsilons written by hand: h + ε and max(h, ε) as divisors, h ≥ 0 a statistic of degree k > 0.

x/(h + ε) is x/h up to ε, which is what normalisation layers say, too. It holds only if what is divided is zero wherever
h is: a statistic of ReLUs is zero on a whole region, where N/(h + ε) would be N/ε. So one form is accepted: h is a sum,
mean, maximum, norm, variance or deviation of the very tensor t that is divided, or of |t| or t², and the numerator is a
multiple of t entry by entry (of t − mean(t) for a variance).

    x / (x.norm(dim=-1, keepdim=True) + ε)    x * rsqrt(x.square().mean(-1, keepdim=True) + ε)    F.normalize(x)
"""

import math
from dataclasses import dataclass
from typing import Any

from torch import fx

from axiograd.homogeneity.degrees import Value, of_degree
from axiograd.homogeneity.nodes import argument
from axiograd.homogeneity.rules.call import LARGEST_EPSILON, Call
from axiograd.homogeneity.rules.origins import COPIES, alike, name_of, nonnegative, reduced_dims, sizes
from axiograd.homogeneity.rules.registry import aten

FAR_ABOVE = "a divisor with an epsilon is far above it wherever it is not zero"
_SUMS = frozenset(aten("sum mean amax"))
_NORMS = frozenset(aten("norm linalg_vector_norm"))
_SPREADS = frozenset(aten("var std"))
#: Views that only add or drop dimensions of size 1, if the other sizes stay.
_RESHAPED = frozenset(aten("view reshape _unsafe_view squeeze unsqueeze slice")) | COPIES
_EXPANDED = frozenset(aten("expand expand_as broadcast_to"))
#: Zero where their first argument is.
_THROUGH_ZERO = frozenset(aten("abs neg relu leaky_relu dropout div")) | COPIES
_EXPONENTS = {"aten::square": 2.0, "aten::sqrt": 0.5, "aten::rsqrt": -0.5, "aten::reciprocal": -1.0}
_WITH_NUMBER = frozenset(aten("pow mul div"))


@dataclass(frozen=True)
class Statistic:
    """A value that is zero only where all entries of `tensor` are, along the dimensions that it was taken over."""

    tensor: fx.Node
    #: Those of `tensor`, with 1 where it was reduced, from the first that is not 1 on.
    shape: list[str]
    #: For a variance: the dimensions along which all entries are equal where it is zero.
    centred: set[int] | None = None


def guarded(call: Call, a: Value, b: Value) -> Value | None:
    """The degree of a statistic with an epsilon; None if this is no such thing."""
    for value, eps, node in zip((a, b), (b, a), call.node.args, strict=False):
        size = None if eps.constant is None else eps.constant.number
        if value.constant is not None or not value.degree or size is None:
            continue
        plain = call.get("alpha", 1) == 1 and sizes(node) == sizes(call.node)
        if plain and value.degree > 0 and 0 < size <= LARGEST_EPSILON:
            statistics = _statistics(node)
            if statistics:
                return _judged(call, value.degree, size, statistics)
    return None


def _judged(call: Call, degree: float, size: float, statistics: list[Statistic]) -> Value:
    if any(_only_divides(call.node, statistic, sizes(call.node) or []) for statistic in statistics):
        call.epsilon(size)
        call.assume(FAR_ABOVE)
    else:
        call.report(
            f"The constant {size:g} is added to a statistic of degree {degree:g}. A divisor may have "
            "it only if the dividend is zero wherever the statistic is, which could not be shown here.",
            "Divide by h.masked_fill(h == 0, torch.inf) instead of h + eps: the quotient is then 0.",
            kind="normalisation",
        )
    return of_degree(degree)


def _statistics(node: Any) -> list[Statistic]:
    """What a value is a statistic of, in each way that it can be seen; nothing if it is none."""
    name = name_of(node)
    if name in _RESHAPED or _exponent(node) > 0:
        return _statistics(node.args[0])
    tensor = node.args[0] if name in _SUMS | _NORMS | _SPREADS else None
    shape = sizes(tensor)
    if tensor is None or shape is None:
        return []
    over = reduced_dims(node, len(shape))
    kept = _from_first([("1" if d in over else size) for d, size in enumerate(shape)])
    if name in _SPREADS:
        return [Statistic(tensor, kept, over)]
    if name in _NORMS:
        order = argument(node, "ord", argument(node, "p", 2))
        return [Statistic(tensor, kept)] if isinstance(order, int | float) and order > 0 else []
    found = [Statistic(tensor, kept)] if nonnegative(tensor) else []
    # |t| and t² are zero where t is.
    while found and (name_of(tensor) == "aten::abs" or _exponent(tensor) > 0 or _is_square(tensor)):
        tensor = tensor.args[0]
        found.append(Statistic(tensor, kept))
    return found


def _only_divides(node: fx.Node, statistic: Statistic, shape: list[str], *, inverse: bool = False) -> bool:
    """Every use of a divisor (or, if `inverse`, of a factor 1/h) is below a multiple of the statistic's tensor."""
    return bool(node.users) and all(_divides(user, node, statistic, shape, inverse=inverse) for user in node.users)


def _divides(user: fx.Node, node: fx.Node, statistic: Statistic, shape: list[str], *, inverse: bool) -> bool:
    name = name_of(user)
    exponent = _exponent(user)
    if exponent > 0 or (exponent < 0 and not inverse):
        return _only_divides(user, statistic, shape, inverse=inverse or exponent < 0)
    if name in _RESHAPED:
        return _only_divides(user, statistic, sizes(user) or [], inverse=inverse)
    # Each entry must meet the divisor that was made from its own row.
    if _from_first(shape) != statistic.shape or argument(user, "rounding_mode") is not None:
        return False
    if name in _EXPANDED:
        return _only_divides(user, statistic, shape, inverse=inverse)
    if name == "aten::div":
        return not inverse and user.args[1] is node and _is_multiple_of(user.args[0], statistic)
    other = user.args[1 if user.args[0] is node else 0] if name == "aten::mul" else None
    return inverse and other is not node and _is_multiple_of(other, statistic)


def _is_multiple_of(node: Any, statistic: Statistic) -> bool:
    """Zero, entry by entry, wherever the statistic is."""
    if not isinstance(node, fx.Node):
        return False
    if statistic.centred is None:
        if alike(node, statistic.tensor):
            return True
    elif _is_centred(node, statistic):
        return True
    name = name_of(node)
    if name == "aten::mul":
        return any(_is_multiple_of(factor, statistic) for factor in node.args)
    return (name in _THROUGH_ZERO or _exponent(node) > 0) and _is_multiple_of(node.args[0], statistic)


def _is_centred(node: fx.Node, statistic: Statistic) -> bool:
    """t − mean(t), over the same dimensions."""
    tensor, shape = statistic.tensor, sizes(statistic.tensor) or []
    if name_of(node) != "aten::sub" or node.kwargs or not alike(node.args[0], tensor):
        return False
    mean = node.args[1]
    if name_of(mean) != "aten::mean" or not alike(mean.args[0], tensor):  # type: ignore[union-attr]
        return False
    aligned = _from_first(sizes(mean) or []) == statistic.shape
    return aligned and reduced_dims(mean, len(shape)) == statistic.centred  # type: ignore[arg-type]


def _from_first(shape: list[str]) -> list[str]:
    """Sizes without the ones in front, which broadcasting adds."""
    start = next((d for d, size in enumerate(shape) if size != "1"), len(shape))
    return shape[start:]


def _exponent(node: Any) -> float:
    """The power that an operator raises its argument to, times a positive number; 0 for any other operator."""
    name = name_of(node)
    if name in _EXPONENTS:
        return _EXPONENTS[name]
    number = node.args[1] if name in _WITH_NUMBER else None
    if not isinstance(number, int | float) or argument(node, "rounding_mode") is not None:
        return 0.0
    return number if name == "aten::pow" else float(0 < number < math.inf)


def _is_square(node: Any) -> bool:
    return name_of(node) == "aten::mul" and node.args[0] is node.args[1]
