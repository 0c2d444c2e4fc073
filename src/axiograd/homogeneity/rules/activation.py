"""Functions that have no degree: they need arguments of degree 0."""

from axiograd.homogeneity.domain import of_degree
from axiograd.homogeneity.rules.call import LIFT_FIX, Call
from axiograd.homogeneity.rules.registry import Result, aten, rule

#: Stand in for a ReLU: what follows is read as if they kept the degree.
UNITS = """
    gelu silu elu selu celu mish hardswish softplus tanh hardshrink softshrink log_sigmoid
    log_sigmoid_forward
"""
#: Gates and probabilities: what follows is read as if they were of degree 0.
GATES = """
    sigmoid hardsigmoid softmax _softmax _safe_softmax log_softmax _log_softmax exp exp2 expm1 log log2
    log10 log1p logit erf erfc erfinv sin cos tan asin acos atan asinh acosh atanh sinh cosh sinc lgamma
    digamma special_expit special_erf arcsin arccos arctan special_erfcx special_ndtr special_log_ndtr i0
    special_i0e special_i1 special_entr polygamma logaddexp logaddexp2 logsumexp logcumsumexp
    matrix_exp linalg_matrix_exp bernoulli multinomial poisson
"""
_COUNTERPART = {
    "softmax": "Normalise the logits to degree 0 first (QK-normalised attention), or return the logits "
    "and apply softmax in the loss.",
    "sigmoid": "Feed the gate a normalised value of degree 0, or return the logit and apply sigmoid in the loss.",
}


@rule(*aten(UNITS))
def unit(call: Call) -> Result:
    value = call.first()
    return call.require_invariant(
        value,
        f"{call.title} of a value of degree {value.degree or 0:g} has no degree.",
        "Use ReLU, LeakyReLU or PReLU; axiograd.to_xdnn puts in a homogeneous counterpart.",
        then=value,
    )


@rule(*aten(GATES))
def gate(call: Call) -> Result:
    moving = next((v for v in call.values() if v.degree), of_degree(0))
    key = call.name.removeprefix("aten::").strip("_").removeprefix("log_").removeprefix("hard")
    return call.require_invariant(
        moving,
        f"{call.title} of a value of degree {moving.degree or 0:g} has no degree.",
        _COUNTERPART.get(key, f"Feed it a normalised value of degree 0. {LIFT_FIX}"),
        kind="attention" if "softmax" in key else "activation",
    )


@rule("aten::glu")
def glu(call: Call) -> Result:
    value = call.first()
    return call.require_invariant(
        value,
        f"The gate of glu is the sigmoid of a value of degree {value.degree or 0:g}, which has no degree.",
        "Gate by ReLU, or by a normalised value; axiograd.to_xdnn puts in a homogeneous counterpart.",
        then=value,
    )


@rule("aten::xlogy", "aten::special_xlogy", "aten::special_xlog1py")
def times_log(call: Call) -> Result:
    """x·log(y) and x·log(1 + y): the degree of x, if y has degree 0."""
    factor = call.value("other")
    call.require_invariant(
        factor,
        f"The logarithm of a value of degree {factor.degree or 0:g} has no degree.",
        f"Feed it a normalised value of degree 0. {LIFT_FIX}",
    )
    return call.product(call.value("self"), of_degree(0))
