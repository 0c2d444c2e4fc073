"""Elementwise arithmetic and activations that keep or change the degree by algebra."""

import math

from axiograd.homogeneity.domain import number, of_degree, power as raise_to
from axiograd.homogeneity.rules.call import LIFT_FIX, Call, is_invariant
from axiograd.homogeneity.rules.guard import guards
from axiograd.homogeneity.rules.random import FIXED
from axiograd.homogeneity.rules.registry import Result, aten, rule

SIGNS = "sign sgn signbit isnan isinf isfinite"
#: Operators that multiply the degree by a number.
POWERS = {"square": 2.0, "sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0, "var": 2.0}


@rule("aten::add", "aten::sub", "aten::rsub", "aten::subtract")
def add(call: Call) -> Result:
    a, b = call.value("self"), call.value("other")
    alpha = call.get("alpha", 1)
    if alpha == 0:
        return b if "rsub" in call.name else a
    guarded = guards(call, a, b)
    if guarded is not None:
        return guarded
    return call.join(a, b, role="a sum", kind="bias")


@rule("aten::mul", "aten::multiply")
def mul(call: Call) -> Result:
    return call.product(call.value("self"), call.value("other"))


@rule("aten::div", "aten::true_divide", "aten::divide", "aten::floor_divide")
def div(call: Call) -> Result:
    quotient = call.product(call.value("self"), raise_to(call.value("other"), -1))
    if call.get("rounding_mode") is None and "floor" not in call.name:
        return quotient
    return call.require_invariant(
        quotient,
        f"A rounded quotient of degree {quotient.degree or 0:g} jumps as the input scales.",
        "Divide values of equal degree, or leave the quotient unrounded.",
        kind="rounding",
        then=quotient,
    )


@rule(*aten("remainder fmod hypot maximum minimum fmax fmin complex"))
def join_two(call: Call) -> Result:
    a, b = list(call.arguments)[:2]
    guarded = guards(call, call.value(a), call.value(b)) if call.name == "aten::maximum" else None
    return guarded if guarded is not None else call.join(call.value(a), call.value(b), role=call.title)


@rule("aten::atan2", "aten::arctan2")
def atan2(call: Call) -> Result:
    call.join(call.value("self"), call.value("other"), role="an angle")
    return of_degree(0)


@rule("aten::polar")
def polar(call: Call) -> Result:
    """r·(cos φ + i·sin φ)."""
    angle = call.value("angle")
    call.require_invariant(
        angle,
        f"The angle of a complex number has degree {angle.degree or 0:g}, so that scaling the input turns it.",
        "Compute the angle from constants or from values of degree 0.",
    )
    return call.product(call.value("abs"), of_degree(0))


@rule(*aten("neg negative abs absolute relu leaky_relu rrelu copysign"))
def keep(call: Call) -> Result:
    return call.first()


@rule("aten::rrelu_with_noise", "aten::rrelu_with_noise_functional")
def rrelu(call: Call) -> Result:
    call.assume(FIXED)
    return (call.value("self"), of_degree(0)) if call.name.endswith("functional") else call.value("self")


@rule("aten::prelu", "aten::_prelu_kernel")
def prelu(call: Call) -> Result:
    value = call.value("self")
    call.require_invariant(
        call.value("weight"),
        f"The slope of PReLU has degree {call.degree('weight'):g}, so that its two halves differ in degree.",
        "Compute the slope from normalised values.",
    )
    return value


@rule(*aten(" ".join(POWERS)))
def fixed_power(call: Call) -> Result:
    return raise_to(call.first(), POWERS[call.name.removeprefix("aten::").removesuffix("_")])


@rule("aten::pow", "aten::float_power")
def pow_(call: Call) -> Result:
    base, exponent = call.value("self"), call.value("exponent")
    p = None if exponent.constant is None else exponent.constant.uniform()
    if exponent.constant is not None and p is not None and math.isfinite(p):
        call.exponent(exponent.constant.names)
        return raise_to(base, p)
    if not is_invariant(exponent):
        reason = f"The exponent has degree {exponent.degree or 0:g}: the power grows exponentially with the scale."
    else:
        reason = f"A value of degree {base.degree or 0:g} is raised to a power that is not one finite number."
    call.report(reason, "Use one constant exponent.", kind="degrees")
    return base


@rule(*aten(SIGNS), "aten::angle")
def scale_free(call: Call) -> Result:  # noqa: ARG001 - the sign of every degree is of degree 0
    return of_degree(0)


@rule("aten::heaviside")
def heaviside(call: Call) -> Result:
    call.require_invariant(
        call.value("values"),
        "The values of heaviside at zero scale with the input, its steps do not.",
        "Give constant values.",
    )
    return of_degree(0)


@rule("aten::clamp", "aten::clamp_min", "aten::clamp_max", "aten::clip", "aten::hardtanh")
def clamp(call: Call) -> Result:
    value = call.value("self")
    low, high = (
        None if call.get(a) is None and call.get(b) is None else call.value(a if call.get(a) is not None else b)
        for a, b in (("min", "min_val"), ("max", "max_val"))
    )
    if low is not None and high is None:
        guarded = guards(call, value, low)
        if guarded is not None:
            return guarded
    bounds = [bound for bound in (low, high) if bound is not None]
    return call.join(value, *bounds, role="clamping", kind="activation")


@rule("aten::relu6")
def relu6(call: Call) -> Result:
    return call.join(call.first(), number(6.0), role="clamping", kind="activation")


@rule("aten::threshold")
def threshold(call: Call) -> Result:
    values = (call.value(name) for name in ("self", "threshold", "value"))
    return call.join(*values, role="a threshold", kind="activation")


@rule("aten::threshold_backward")
def threshold_backward(call: Call) -> Result:
    """Where a derivative of ReLU is taken inside the model: the gradient passes where self exceeds the threshold."""
    call.join(call.value("self"), call.value("threshold"), role="a threshold", kind="activation")
    return call.value("grad_output")


@rule("aten::nan_to_num")
def nan_to_num(call: Call) -> Result:
    value = call.value("self")
    nan, top, bottom = call.get("nan", 0.0), call.get("posinf"), call.get("neginf")
    if nan == 0 and top == float("inf") and bottom == -float("inf"):
        return value
    return call.require_invariant(
        value,
        "nan_to_num replaces NaN or infinity by a finite number, which does not scale.",
        "Pass nan=0.0, posinf=inf, neginf=-inf, or avoid the division that makes them.",
        kind="constant",
        then=value,
    )


@rule("aten::lerp")
def lerp(call: Call) -> Result:
    weight = call.value("weight")
    call.require_invariant(
        weight,
        f"The weight of an interpolation has degree {weight.degree or 0:g}, so its ends differ in degree.",
        "Compute the weight from normalised values.",
        kind="degrees",
    )
    return call.join(call.value("self"), call.value("end"), role="an interpolation")


@rule("aten::addcmul", "aten::addcdiv")
def add_product(call: Call) -> Result:
    second = call.value("tensor2") if "mul" in call.name else raise_to(call.value("tensor2"), -1)
    term = call.product(call.value("value"), call.value("tensor1"), second)
    return call.join(call.value("self"), term, role="a sum", kind="bias")


@rule(*aten("round floor ceil trunc fix frac"))
def rounding(call: Call) -> Result:
    value = call.first()
    return call.require_invariant(
        value,
        f"Rounding a value of degree {value.degree or 0:g} jumps as the input scales.",
        f"Round values of degree 0 only. {LIFT_FIX}",
        kind="rounding",
        then=value,
    )
