"""Reductions and pools: sums, extremes, norms, products and moments."""

import math

from axiograd.homogeneity.domain import of_degree, power
from axiograd.homogeneity.rules.call import Call
from axiograd.homogeneity.rules.registry import Result, aten, rule

SUMS = "sum mean nansum nanmean cumsum"
#: Pools that average, that pick an entry, and that also say where it was.
AVERAGE_POOLS = """
    avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d
    _adaptive_avg_pool3d
"""
MAX_POOLS = "max_pool1d max_pool2d max_pool3d"
MAX_POOLS_WITH_INDICES = """
    max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d
"""
#: Entries by their order.
ORDERED = "sort topk kthvalue mode cummax cummin msort median nanmedian aminmax"
#: Where something is, or whether.
PLACES = "argmax argmin argsort any all count_nonzero nonzero argwhere nonzero_numpy"
SEARCHES = "searchsorted bucketize isin"


@rule(*aten(SUMS), *aten("amax amin std nuclear_norm frobenius_norm"), *aten(AVERAGE_POOLS), *aten(MAX_POOLS))
def keep(call: Call) -> Result:
    return call.first()


@rule("aten::max", "aten::min")
def extreme(call: Call) -> Result:
    if "other" in call.arguments:
        return call.join(call.value("self"), call.value("other"), role=call.title)
    return (call.value("self"), of_degree(0)) if "dim" in call.arguments else call.value("self")


@rule(*aten(MAX_POOLS_WITH_INDICES))
def pool_with_indices(call: Call) -> Result:
    return call.first(), of_degree(0)


@rule(*aten(ORDERED))
def pick(call: Call) -> Result:
    value = call.value("self")
    if call.name == "aten::aminmax":
        return value, value
    if call.name == "aten::msort" or (call.name.endswith("median") and "dim" not in call.arguments):
        return value
    return value, of_degree(0)


@rule(*aten(PLACES))
def place(call: Call) -> Result:  # noqa: ARG001 - order and sign of every degree are of degree 0
    return of_degree(0)


@rule("aten::var_mean")
def var_mean(call: Call) -> Result:
    return power(call.first(), 2), call.first()


@rule("aten::std_mean")
def std_mean(call: Call) -> Result:
    return call.first(), call.first()


@rule("aten::norm", "aten::linalg_vector_norm", "aten::linalg_norm", "aten::linalg_matrix_norm", "aten::dist")
def norm(call: Call) -> Result:
    order = call.get("ord", call.get("p", 2))
    value = call.first()
    if call.name == "aten::dist":
        value = call.join(call.value("self"), call.value("other"), role="a distance")
    # The "norm" of order 0 counts what is not zero.
    return of_degree(0) if order == 0 else value


@rule("aten::cdist", "aten::_cdist_forward", "aten::_euclidean_dist")
def cdist(call: Call) -> Result:
    value = call.join(call.value("x1"), call.value("x2"), role="a distance")
    return of_degree(0) if call.get("p", 2.0) == 0 else value


@rule("aten::pdist", "aten::_pdist_forward")
def pdist(call: Call) -> Result:
    return of_degree(0) if call.get("p", 2.0) == 0 else call.first()


@rule("aten::prod")
def prod(call: Call) -> Result:
    value = call.value("self")
    shape = call.shape()
    counts = ([shape[call["dim"]]] if shape else [1]) if "dim" in call.arguments else list(shape)
    if all(isinstance(c, int) for c in counts):
        return power(value, math.prod(counts))
    call.report(
        f"A product of factors of degree {value.degree or 0:g}, as many as a dimension that varies, has "
        "no fixed degree.",
        "Take the product over a dimension of fixed size.",
        kind="degrees",
    )
    return value


@rule("aten::cumprod")
def cumprod(call: Call) -> Result:
    value = call.value("self")
    shape = call.shape()
    if not shape or shape[call["dim"]] == 1:
        return value
    return call.require_invariant(
        value,
        f"The entries of a cumulative product of factors of degree {value.degree or 0:g} differ in degree.",
        "Feed it values of degree 0.",
        kind="degrees",
        then=value,
    )


@rule(*aten(SEARCHES))
def search(call: Call) -> Result:
    call.join(*call.values(), role="a search", kind="comparison")
    return of_degree(0)
