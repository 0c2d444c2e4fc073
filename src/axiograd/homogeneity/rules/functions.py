"""Rules for operators that do not fit a row of the table, because an argument decides what they do."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from axiograd.homogeneity.degrees import FREE, UNKNOWN, ZERO, Value, number, of_degree, power, product
from axiograd.homogeneity.rules.call import (
    BIAS_FIX,
    LARGEST_EPSILON,
    Call,
    as_value,
    describe_constants,
)
from axiograd.homogeneity.rules.epsilons import guarded
from axiograd.homogeneity.rules.registry import Result, Rule, aten, rule
from axiograd.homogeneity.rules.table import SLOPES, Slope

R = TypeVar("R", bound=Rule)


def _operators(names: str, slope: Slope = Slope.CURVED) -> Callable[[R], R]:
    """The rule of some of PyTorch's own operators."""
    SLOPES.update(dict.fromkeys(aten(names), slope))
    return rule(*aten(names))


# Sums, quotients and powers


@_operators("add sub rsub subtract", Slope.LINEAR)
def add(call: Call) -> Result:
    a, b = call.value("self"), call.value("other")
    if call.get("alpha", 1) == 0:
        return b if "rsub" in call.name else a
    statistic = guarded(call, a, b) if call.name.startswith("aten::add") else None
    return call.join(a, b, kind="bias") if statistic is None else statistic


@_operators("div divide true_divide", Slope.LINEAR_IN_FIRST)
def div(call: Call) -> Result:
    quotient = product([call.value("self"), power(call.value("other"), -1)])
    if call.get("rounding_mode") is None and "floor" not in call.name:
        return quotient
    return call.require_invariant(
        quotient,
        f"A rounded quotient of degree {quotient.degree or 0:g} jumps as the input scales.",
        "Divide values of equal degree, or leave the quotient unrounded.",
        kind="rounding",
        then=quotient,
    )


_operators("floor_divide", Slope.STEP)(div)


@_operators("pow float_power")
def pow_(call: Call) -> Result:
    base, exponent = call.value("self"), call.value("exponent")
    p = None if exponent.constant is None else exponent.constant.number
    if exponent.constant is not None and p is not None and math.isfinite(p):
        call.exponent(exponent.constant.names)
        return power(base, p)
    if not exponent.is_invariant():
        reason = f"The exponent has degree {exponent.degree or 0:g}: the power grows exponentially with the scale."
    else:
        reason = f"A value of degree {base.degree or 0:g} is raised to a power that is not one finite number."
    call.report(reason, "Use one constant exponent.", kind="degrees")
    return base


@_operators("maximum", Slope.GATE)
def maximum(call: Call) -> Result:
    a, b = call.value("self"), call.value("other")
    statistic = guarded(call, a, b)
    return call.join(a, b) if statistic is None else statistic


@_operators("clamp clamp_min clamp_max clip", Slope.GATE)
def clamp(call: Call) -> Result:
    value, low, high = call.value("self"), call.given("min"), call.given("max")
    statistic = guarded(call, value, low[0]) if low and not high else None
    return call.join(value, *low, *high, kind="activation") if statistic is None else statistic


@_operators("relu6", Slope.GATE)
def relu6(call: Call) -> Result:
    return call.join(call.first(), number(6.0), kind="activation")


# Layers: degrees add, a bias must have the sum


@_operators(
    """
    linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution conv_tbc
    bilinear
    """,
    Slope.PRODUCT,
)
def layer(call: Call) -> Result:
    factors = call.given("input", "self", "input1", "input2", "weight")
    return _with_bias(call, product(factors))


@_operators("addmm addmv addbmm baddbmm addr", Slope.PRODUCT)
def add_product(call: Call) -> Result:
    """β·self + α·(one × other)."""
    added, *factors = call.values()
    # A constant keeps its numbers under a factor of 1, so that a bias of zeros is still seen as zero.
    if call.get("beta", 1) != 1:
        added = product([added, as_value(call["beta"])])
    return call.join(product([*factors, as_value(call.get("alpha", 1))]), added, kind="bias")


def _with_bias(call: Call, value: Value) -> Value:
    """value + bias, in the words of a layer."""
    if call.get("bias") is None:
        return value
    bias = call.value("bias")
    if bias.constant is None or value.is_invariant():
        return call.join(value, bias, kind="bias")
    if not bias.is_free():
        names, text = describe_constants([bias])
        call.report(
            f"Adds {text} as a bias to a value of degree {value.degree or 0:g}.",
            BIAS_FIX,
            kind="bias",
            parameters=names,
        )
    return value


# Normalisations: by the input's own statistics they give degree 0 up to epsilon, by constants they keep the degree


def _normalised(call: Call, value: Value, eps: float) -> Value:
    """x̂ = (x − mean)/√(var + eps): degree 0, up to eps unless x is of degree 0 already."""
    if value.zero:
        return ZERO
    if not value.is_invariant() and eps != 0:
        if 0 < eps <= LARGEST_EPSILON:
            call.epsilon(eps)
        else:
            call.report(
                f"An epsilon of {eps:g} is not small beside a variance.",
                f"Use an epsilon of at most {LARGEST_EPSILON:g}.",
                kind="normalisation",
            )
    return of_degree(0)


def _scaled_and_shifted(call: Call, value: Value) -> Value:
    """x̂·weight + bias."""
    return _with_bias(call, product([value, *call.given("weight")]))


@_operators("layer_norm group_norm rms_norm native_layer_norm native_group_norm _fused_rms_norm")
def norm(call: Call) -> Result:
    value, eps = call.value("input"), call.get("eps")
    result: Any = call.node.meta.get("val")
    several = isinstance(result, list | tuple)
    if eps is None:
        eps = torch.finfo((result[0] if several else result).dtype).eps
    normalised = _scaled_and_shifted(call, _normalised(call, value, eps))
    if not several:
        return normalised
    # With an epsilon, 1/√(var + eps) is 1/√eps wherever var is zero.
    scale = power(value, -1) if eps == 0 or value.is_invariant() else UNKNOWN
    return (normalised, scale) if "rms" in call.name else (normalised, value, scale)


@_operators(
    """
    batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training
    """,
    Slope.LINEAR_IN_FIRST,
)
def batch_norm(call: Call) -> Result:
    value = call.value("input")
    by_batch = call.get("training", call.get("use_input_stats", default=False))
    if by_batch:
        normalised = _scaled_and_shifted(call, _normalised(call, value, call["eps"]))
        mean, scale = value, power(value, -1) if call["eps"] == 0 or value.is_invariant() else UNKNOWN
    else:
        normalised, mean, scale = _by_constants(call, value), of_degree(0), of_degree(0)
    results = call.node.meta.get("val")
    # The updated running statistics mix constants with the batch's own.
    updated = (UNKNOWN, UNKNOWN) if call.name.endswith("functional") else ()
    return (normalised, mean, scale, *updated) if isinstance(results, list | tuple) else normalised


_operators("instance_norm")(batch_norm)


def _by_constants(call: Call, value: Value) -> Value:
    """y = (x − mean)·weight/√(var + eps) + bias: keeps the degree if mean and bias are zero or scale with it."""
    for variance in call.given("running_var"):
        call.require_invariant(
            variance,
            "Normalises by a variance that scales with the input, through an operator that expects running statistics.",
            "Pass running statistics that are buffers of the module.",
            kind="normalisation",
        )
    shifts = [v for v in call.given("running_mean", "bias") if v.constant is not None and not v.is_free()]
    if shifts and not value.is_invariant():
        names, text = describe_constants(shifts)
        call.report(
            f"Batch normalisation with running statistics shifts a value of degree {value.degree or 0:g} by {text}.",
            "Set mean and shift to zero, or convert the model: axiograd.to_xdnn(model, examples).",
            kind="normalisation",
            parameters=names,
        )
        return value
    return _scaled_and_shifted(call, call.join(value, *call.given("running_mean")))


@_operators("cosine_similarity")
def cosine_similarity(call: Call) -> Result:
    pair = [call.value("x1"), call.value("x2")]
    if product(pair).zero:
        return ZERO
    return _normalised(call, next((v for v in pair if not v.is_invariant()), of_degree(0)), call["eps"])


@_operators(
    "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_attention_math"
)
def attention(call: Call) -> Result:
    """Softmax wants logits of degree 0, the output has the degree of the values."""
    logits = product([call.value("query"), call.value("key")])
    call.require_invariant(
        logits,
        f"The logits of softmax attention have degree {logits.degree or 0:g}: the attention sharpens as "
        "the input grows.",
        "Normalise queries and keys (QK-normalised attention), or convert the model: "
        "axiograd.to_xdnn(model, examples).",
        kind="attention",
    )
    for mask in call.given("attn_mask"):
        call.require_invariant(
            mask,
            f"The attention mask has degree {mask.degree or 0:g}, the logits must have degree 0.",
            "Compute the mask from constants or normalised values.",
            kind="attention",
        )
    returned = call.node.meta.get("val")
    value = call.value("value")
    return (value, *(of_degree(0) for _ in returned[1:])) if isinstance(returned, list | tuple) else value


# Norms, distances, products of many, matrices


@_operators(
    "norm linalg_vector_norm linalg_norm linalg_matrix_norm dist cdist _cdist_forward _euclidean_dist pdist "
    "_pdist_forward"
)
def distance(call: Call) -> Result:
    value = call.join(*call.values())
    # The "norm" of order 0 counts what is not zero.
    return of_degree(0) if call.get("ord", call.get("p", 2)) == 0 else value


@_operators("prod cumprod linalg_det _linalg_det")
def prod(call: Call) -> Result:
    """A product of n factors, or det(αA) = αⁿ·det(A): n times the degree."""
    value, shape = call.first(), call.shape()
    if "det" in call.name:
        counts = [shape[-1]]
    else:
        counts = ([shape[call["dim"]]] if shape else [1]) if "dim" in call.arguments else list(shape)
    if not all(isinstance(n, int) for n in counts) or ("cumprod" in call.name and counts != [1]):
        return call.require_invariant(
            value,
            f"{call.title} multiplies factors of degree {value.degree or 0:g}, not always as many of them.",
            "Feed it values of degree 0, or as many factors for every entry and every batch.",
            kind="degrees",
            then=value,
        )
    result = power(value, math.prod(counts))
    return (result, UNKNOWN, of_degree(0)) if call.name == "aten::_linalg_det" else result


@_operators("linalg_solve_ex linalg_solve")
def solve(call: Call) -> Result:
    """A⁻¹B."""
    result = product([power(call.value("A"), -1), call.value("B")])
    return (result, of_degree(0)) if call.name == "aten::linalg_solve_ex" else result


# Memory


@_operators("view view_copy", Slope.LINEAR)
def view(call: Call) -> Result:
    value = call.first()
    if call.get("dtype") is None:
        return value
    return call.require_invariant(
        value,
        "The bits of a floating-point number are read as another type.",
        "Convert with .to(dtype) instead of .view(dtype).",
        kind="rounding",
        then=value,
    )


@_operators("pad", Slope.LINEAR)
def pad(call: Call) -> Result:
    if call["mode"] != "constant":
        return call.first()
    return call.join(call.first(), number(call.get("value", 0.0)))


@_operators("copy fill full_like new_full full scalar_tensor", Slope.LINEAR)
def fill(call: Call) -> Result:
    """Of a constant that fills a tensor, what matters is whether it is zero."""
    (value,) = call.given("src", "value", "fill_value", "s")
    if value.constant is None:
        return value
    return ZERO if value.is_zero() else FREE if value.is_free() else of_degree(0)


@_operators("scatter scatter_reduce index_reduce")
def scatter(call: Call) -> Result:
    if call.get("reduce") in {"multiply", "prod"}:
        call.report(
            "A scatter by multiplication raises each entry to a power that depends on the indices.",
            "Reduce by sum, mean, amax or amin.",
            kind="degrees",
        )
        return call.value("self")
    return call.join(*call.terms())
