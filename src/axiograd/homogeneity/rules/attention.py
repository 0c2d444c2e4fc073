"""Attention: softmax wants logits of degree 0, the output has the degree of the values."""

from axiograd.homogeneity.domain import of_degree, product
from axiograd.homogeneity.rules.call import Call
from axiograd.homogeneity.rules.random import FIXED
from axiograd.homogeneity.rules.registry import Result, aten, rule

_FORMS = """
    scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_attention_math
"""


@rule(*aten(_FORMS))
def attention(call: Call) -> Result:
    logits = product([call.value("query"), call.value("key")])
    values = call.value("value")
    if call.get("dropout_p", 0.0):
        call.assume(FIXED)
    call.require_invariant(
        logits,
        f"The logits of softmax attention have degree {logits.degree or 0:g}: the attention sharpens as "
        "the input grows.",
        "Normalise queries and keys (QK-normalised attention); axiograd.to_xdnn does it.",
        kind="attention",
    )
    if call.get("attn_mask") is not None:
        call.require_invariant(
            call.value("attn_mask"),
            f"The attention mask has degree {call.degree('attn_mask'):g}, the logits must have degree 0.",
            "Compute the mask from constants or normalised values.",
            kind="attention",
        )
    returned = call.node.meta.get("val")
    return (values, *(of_degree(0) for _ in returned[1:])) if isinstance(returned, list | tuple) else values
