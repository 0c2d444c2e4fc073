"""Random numbers do not scale; dropout is linear given its mask."""

from axiograd.homogeneity.domain import of_degree
from axiograd.homogeneity.rules.call import Call
from axiograd.homogeneity.rules.registry import Result, aten, rule

FIXED = "random draws (dropout masks and the like) are held fixed"
DRAWS = """
    rand_like randn_like randint_like randperm rand randn randint uniform normal_functional random exponential geometric
    cauchy log_normal
"""


@rule(*aten(DRAWS))
def draw(call: Call) -> Result:
    call.assume(FIXED)
    return of_degree(0)


@rule("aten::dropout", "aten::feature_dropout")
def dropout(call: Call) -> Result:
    if call["train"]:
        call.assume(FIXED)
    return call.first()


@rule("aten::native_dropout")
def native_dropout(call: Call) -> Result:
    if call.get("train"):
        call.assume(FIXED)
    return call.first(), of_degree(0)


@rule("aten::alpha_dropout", "aten::feature_alpha_dropout")
def alpha_dropout(call: Call) -> Result:
    value = call.first()
    if not call["train"]:
        return value
    call.assume(FIXED)
    return call.require_invariant(
        value,
        f"Alpha dropout fills in a constant beside values of degree {value.degree or 0:g}.",
        "Use Dropout, or eval mode.",
        kind="constant",
        then=value,
    )
