"""Comparisons: with zero and between equal degrees the outcome does not depend on the scale."""

from axiograd.homogeneity.domain import of_degree
from axiograd.homogeneity.rules.call import Call
from axiograd.homogeneity.rules.registry import Result, aten, rule

COMPARISONS = "eq ne lt le gt ge not_equal less less_equal greater greater_equal"
LOGIC = """
    logical_and logical_or logical_xor logical_not __and__ __or__ __xor__ bitwise_and bitwise_or bitwise_not bitwise_xor
"""


@rule(*aten(COMPARISONS))
def compare(call: Call) -> Result:
    call.join(call.value("self"), call.value("other"), role="a comparison", kind="comparison")
    return of_degree(0)


@rule(*aten(LOGIC))
def logic(call: Call) -> Result:  # noqa: ARG001 - "not zero" is of degree 0
    return of_degree(0)


@rule("aten::isclose")
def close(call: Call) -> Result:
    if call.get("atol", 0.0) != 0:
        call.report(
            f"An absolute tolerance of {call['atol']:g} does not scale with what it compares.",
            "Compare with a relative tolerance only (atol=0).",
            kind="comparison",
        )
        return of_degree(0)
    return compare(call)
