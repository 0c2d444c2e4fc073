"""Matrix products and convolutions: degrees add, a bias must have the sum."""

from typing import Any

from axiograd.homogeneity.domain import Value, product
from axiograd.homogeneity.rules.call import BIAS_FIX, Call, as_value, describe_constants
from axiograd.homogeneity.rules.registry import Result, aten, rule

PRODUCTS = """
    mm bmm matmul mv dot vdot inner outer ger linalg_vecdot linalg_matmul kron cross linalg_cross tensordot chain_matmul
    linalg_multi_dot einsum _trilinear
"""
LAYERS = """
    linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution conv_tbc
"""


@rule(*aten(PRODUCTS))
def multiply(call: Call) -> Result:
    return call.product(*call.values())


@rule(*aten(LAYERS))
def layer(call: Call) -> Result:
    image = call.value("self" if call.name == "aten::conv_tbc" else "input")
    return with_bias(call, call.product(image, call.value("weight")), call.get("bias"))


@rule("aten::bilinear")
def bilinear(call: Call) -> Result:
    factors = [call.value(name) for name in ("input1", "input2", "weight")]
    return with_bias(call, product(factors), call.get("bias"))


@rule("aten::addmm", "aten::addmv", "aten::addbmm", "aten::baddbmm", "aten::addr")
def add_product(call: Call) -> Result:
    names = {
        "aten::addmm": ("mat1", "mat2"),
        "aten::addmv": ("mat", "vec"),
        "aten::addr": ("vec1", "vec2"),
    }.get(call.name.rstrip("_"), ("batch1", "batch2"))
    term = product([call.value(n) for n in names])
    alpha, beta = as_value(call.get("alpha", 1)), as_value(call.get("beta", 1))
    return call.join(product([alpha, term]), scaled(call.value("self"), beta), role="a sum", kind="bias")


def scaled(value: Value, factor: Value) -> Value:
    """A constant keeps its numbers under a factor of 1, so that a bias of zeros is still seen as zero."""
    if factor.constant is not None and factor.constant.uniform() == 1:
        return value
    return product([value, factor])


def with_bias(call: Call, value: Value, bias: Any) -> Value:
    """value + bias, in the words of a layer."""
    if bias is None:
        return value
    bias = as_value(bias)
    if not bias.is_constant or value.degree is None or value.degree == 0:
        return call.join(value, bias, role="a layer with its bias", kind="bias")
    if not bias.is_free():
        names, text = describe_constants([bias])
        call.report(
            f"Adds {text} as a bias to a value of degree {value.degree:g}.",
            BIAS_FIX,
            kind="bias",
            parameters=names,
        )
    return value
