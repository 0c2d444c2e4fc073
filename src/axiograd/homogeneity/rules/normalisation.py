"""Normalisations: by the input's own statistics they give degree 0 up to epsilon, by constants keep it."""

import torch
from torch import Tensor

from axiograd.homogeneity.domain import UNKNOWN, ZERO, Value, of_degree, power, product
from axiograd.homogeneity.rules.call import LARGEST_EPSILON, Call, as_value, describe_constants, is_invariant
from axiograd.homogeneity.rules.linear import with_bias
from axiograd.homogeneity.rules.registry import Result, rule


def normalised(call: Call, value: Value, eps: float) -> Value:
    """x̂ = (x − mean)/√(var + eps): degree 0, up to eps unless x is of degree 0 already."""
    if value.zero:
        return ZERO
    if is_invariant(value) or eps == 0:
        return of_degree(0)
    if not 0 < eps <= LARGEST_EPSILON:
        call.report(
            f"An epsilon of {eps:g} is not small beside a variance.",
            f"Use an epsilon of at most {LARGEST_EPSILON:g}.",
            kind="normalisation",
        )
    else:
        call.epsilon(eps)
    return of_degree(0)


def _inverse_deviation(value: Value, eps: float) -> Value:
    """1/√(var + eps), which these operators hand out besides: with an epsilon it is 1/√eps wherever var is zero."""
    return power(value, -1) if eps == 0 or is_invariant(value) else UNKNOWN


def _affine(call: Call, value: Value) -> Value:
    """x̂·weight + bias."""
    weight, bias = call.get("weight"), call.get("bias")
    if weight is not None:
        value = product([value, as_value(weight)])
    return with_bias(call, value, bias)


@rule("aten::layer_norm", "aten::group_norm")
def norm(call: Call) -> Result:
    return _affine(call, normalised(call, call.value("input"), call.get("eps", 1e-5)))


@rule("aten::native_layer_norm", "aten::native_group_norm")
def native_norm(call: Call) -> Result:
    value = call.value("input")
    return _affine(call, normalised(call, value, call["eps"])), value, _inverse_deviation(value, call["eps"])


@rule("aten::rms_norm", "aten::_fused_rms_norm")
def rms_norm(call: Call) -> Result:
    value = call.value("input")
    eps = call.get("eps")
    if eps is None:
        tensor = call.node.meta.get("val")
        tensor = tensor[0] if isinstance(tensor, list | tuple) else tensor
        eps = torch.finfo(tensor.dtype).eps if isinstance(tensor, Tensor) else 0.0
    result = _affine(call, normalised(call, value, eps))
    return (result, _inverse_deviation(value, eps)) if call.name.endswith("fused_rms_norm") else result


@rule("aten::batch_norm", "aten::instance_norm")
def batch_norm(call: Call) -> Result:
    by_batch = call["training"] if "training" in call.arguments else call["use_input_stats"]
    return _by_batch(call) if by_batch else _by_constants(call)


@rule("aten::_native_batch_norm_legit_no_training")
def frozen_batch_norm(call: Call) -> Result:
    return _by_constants(call), of_degree(0), of_degree(0)


@rule("aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_functional")
def native_batch_norm(call: Call) -> Result:
    value = call.value("input")
    if not call["training"]:
        result = _by_constants(call)
        mean, scale = of_degree(0), of_degree(0)
    else:
        result = _by_batch(call)
        mean, scale = value, _inverse_deviation(value, call["eps"])
    # The updated running statistics mix constants with the batch's own.
    updated = (UNKNOWN, UNKNOWN) if call.name.endswith("functional") else ()
    return (result, mean, scale, *updated)


def _by_batch(call: Call) -> Value:
    return _affine(call, normalised(call, call.value("input"), call["eps"]))


def _by_constants(call: Call) -> Value:
    """y = (x − mean)·weight/√(var + eps) + bias: keeps the degree if mean and bias are zero or scale with it."""
    value, mean = call.value("input"), call.get("running_mean")
    if call.get("running_var") is not None:
        call.require_invariant(
            call.value("running_var"),
            "Normalises by a variance that scales with the input, through an operator that expects running statistics.",
            "Pass running statistics that are buffers of the module.",
            kind="normalisation",
        )
    shifts = [as_value(call[name]) for name in ("running_mean", "bias") if call.get(name) is not None]
    nonzero = [v for v in shifts if v.is_constant and not v.is_free()]
    if nonzero and not is_invariant(value):
        names, text = describe_constants(nonzero)
        call.report(
            f"Batch normalisation with running statistics shifts a value of degree {value.degree or 0:g} by {text}.",
            "Set mean and shift to zero, or let axiograd.to_xdnn strip them.",
            kind="normalisation",
            parameters=names,
        )
        return value
    return _affine(call, value if mean is None else call.join(value, as_value(mean), role="a difference"))


@rule("aten::cosine_similarity")
def cosine_similarity(call: Call) -> Result:
    pair = product([call.value("x1"), call.value("x2")])
    moving = next((v for v in (call.value("x1"), call.value("x2")) if not is_invariant(v)), pair)
    return normalised(call, pair if pair.zero else moving, call.get("eps", 1e-8))


@rule("aten::pairwise_distance")
def pairwise_distance(call: Call) -> Result:
    value = call.join(call.value("x1"), call.value("x2"), role="a distance")
    eps = call.get("eps", 1e-6)
    if eps != 0:
        call.require_invariant(
            value,
            f"Adds an epsilon of {eps:g} to a difference of degree {value.degree or 0:g}.",
            "Pass eps=0.",
            kind="constant",
        )
        value = value if value.degree else of_degree(0)
    return of_degree(0) if call.get("p", 2.0) == 0 else value
