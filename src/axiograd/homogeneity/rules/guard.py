"""Epsilons written by hand: h + eps and max(h, eps) as divisors, h ≥ 0 of degree k > 0.

1/(h + eps) is 1/h up to eps. That is the same statement as for a normalisation layer, and holds only if h is never
negative, the sum is used for nothing but dividing, and what it divides is zero wherever h is: a statistic of ReLUs is
zero on a whole region, where N/(h + eps) would be N/eps.
"""

from torch import fx

from axiograd.homogeneity.domain import Value, of_degree
from axiograd.homogeneity.rules.axes import MOVES, name_of
from axiograd.homogeneity.rules.call import LARGEST_EPSILON, Call
from axiograd.homogeneity.rules.sign import IS_STATISTIC, sign
from axiograd.homogeneity.rules.vanishing import harmless

FAR_ABOVE = "a divisor with an epsilon is far above it wherever it is not zero"
_DEPTH = 8


def guards(call: Call, a: Value, b: Value) -> Value | None:
    """The degree of a guarded divisor, or None if this is not one."""
    if name_of(call.node) in {"aten::sub", "aten::rsub"} or not _divides(call.node):
        return None
    for (value, eps), node in zip(((a, b), (b, a)), call.node.args, strict=False):
        scales = not value.is_constant and value.degree is not None and value.degree > 0
        if not scales or eps.constant is None or not isinstance(node, fx.Node) or sign(node) < IS_STATISTIC:
            continue
        size = eps.constant.uniform()
        if size is not None and 0 < size <= LARGEST_EPSILON:
            return _guarded(call, node, value.degree or 0, size)
    return None


def _guarded(call: Call, statistic: fx.Node, degree: float, size: float) -> Value:
    if harmless(call.node, statistic):
        call.epsilon(size)
        call.assume(FAR_ABOVE)
    else:
        call.report(
            f"An epsilon of {size:g} guards a divisor of degree {degree:g}, which may be zero where what it divides is "
            "not: there the epsilon alone divides.",
            "Divide by h.masked_fill(h == 0, torch.inf) in place of h + eps: what is divided by it becomes 0.",
            kind="normalisation",
        )
    return of_degree(degree)


def _divides(node: fx.Node, depth: int = 0) -> bool:
    """Every use of the node is as a divisor."""
    return bool(node.users) and depth < _DEPTH and all(_divides_in(user, node, depth) for user in node.users)


def _divides_in(user: fx.Node, node: fx.Node, depth: int) -> bool:
    name = name_of(user)
    if name in {"aten::rsqrt", "aten::reciprocal"}:
        return True
    if name == "aten::div":
        return user.args[1] is node and user.args[0] is not node
    if name == "aten::pow":
        return user.args[0] is node and isinstance(user.args[1], int | float) and user.args[1] < 0
    if name == "aten::sqrt" or name in MOVES:
        return _divides(user, depth + 1)
    return False
