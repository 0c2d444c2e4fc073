"""Pooling: averages are linear, maxima pick an entry; both keep the degree."""

from axiograd.homogeneity.domain import of_degree
from axiograd.homogeneity.rules.call import Call
from axiograd.homogeneity.rules.registry import Result, aten, rule

_AVERAGE = """
    avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    _adaptive_avg_pool2d _adaptive_avg_pool3d max_pool1d max_pool2d max_pool3d
"""
_WITH_INDICES = """
    max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool1d
    adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d
"""


@rule(*aten(_AVERAGE))
def pool(call: Call) -> Result:
    return call.first()


@rule(*aten(_WITH_INDICES))
def pool_with_indices(call: Call) -> Result:
    return call.first(), of_degree(0)
