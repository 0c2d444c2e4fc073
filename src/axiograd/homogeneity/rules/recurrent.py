"""Recurrent layers: homogeneous with ReLU and without biases, not with sigmoid or tanh."""

from axiograd.homogeneity.rules.call import LIFT_FIX, Call, flatten
from axiograd.homogeneity.rules.linear import with_bias
from axiograd.homogeneity.rules.registry import Result, rule


@rule("aten::lstm", "aten::gru", "aten::rnn_tanh")
def gated(call: Call) -> Result:
    value = next((v for v in call.values() if v.degree), call.first())
    call.report(
        f"{call.title} applies sigmoid or tanh to values of degree {value.degree or 0:g}.",
        f'nn.RNN(nonlinearity="relu", bias=False) is homogeneous. {LIFT_FIX}',
    )
    return (value,) * len(call.node.meta["val"])


@rule("aten::rnn_relu")
def rnn_relu(call: Call) -> Result:
    data = call.value("input" if "input" in call.arguments else "data")
    state = call.join(data, call.value("hx"), role="a state with its first value")
    params = list(flatten([call["params"]]))
    for weight in params:
        call.require_invariant(
            weight,
            "The weights of the recurrence depend on the input.",
            "Use constant weights.",
            kind="degrees",
        )
    if call["has_biases"]:
        for bias in (b for i in range(0, len(params), 4) for b in params[i + 2 : i + 4]):
            state = with_bias(call, state, bias)
    return state, state
