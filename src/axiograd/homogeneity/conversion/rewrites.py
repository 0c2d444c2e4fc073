"""Homogeneous counterparts of functions: what F.gelu, `x + constant` or softmax become in a patched forward."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from axiograd.homogeneity.conversion.counterparts import fit_slopes, two_slopes
from axiograd.homogeneity.conversion.degrees import degree_of
from axiograd.homogeneity.conversion.scale import infinite_at_zero, root, safe_divide, sample_rms, whole_rms
from axiograd.homogeneity.rules.elementwise import POWERS

if TYPE_CHECKING:
    from axiograd.homogeneity.conversion.patched import Rewriter


class FunctionCall:
    """One function call of a forward pass: the function, and its arguments by position or name."""

    def __init__(
        self, sites: "Rewriter", name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.sites, self.name, self.func = sites, name, func
        self.args, self.kwargs = list(args), dict(kwargs)

    def get(self, index: int, name: str, default: Any = None) -> Any:
        return self.args[index] if index < len(self.args) else self.kwargs.get(name, default)

    def put(self, index: int, name: str, value: Any) -> None:
        if index < len(self.args):
            self.args[index] = value
        else:
            self.kwargs[name] = value

    def run(self) -> Any:
        return self.func(*self.args, **self.kwargs)

    def ratio(
        self,
        x: Tensor,
        after: str,
        batch_dim: int = 0,
        tokens: Sequence[int] | None = None,
        entries: Tensor | None = None,
    ) -> Tensor:
        """RMS(x)/r per sample: of x's own degree, and 1 at the data's scale."""
        radius = self.sites.constant(self.name, after, lambda: whole_rms(x, batch_dim, tokens, entries))
        return (sample_rms(x, batch_dim, tokens, entries) / radius).to(x.dtype)


#: A rewrite returns the result and its degree, or None to leave the call as it is.
Rewrite = Callable[[FunctionCall], tuple[Any, float] | None]


def without_bias(call: FunctionCall) -> tuple[Any, float] | None:
    index = 3 if call.name == "bilinear" else 2
    x, weight, bias = call.get(0, "input"), call.get(1, "weight"), call.get(index, "bias")
    if bias is None or degree_of(x) == 0:
        return None
    call.sites.constant(call.name, f"{call.name} without bias", lambda: torch.ones(()))
    call.put(index, "bias", None)
    return call.run(), degree_of(x) + degree_of(weight)


def product_only(call: FunctionCall) -> tuple[Any, float] | None:
    """addmm, baddbmm: a constant plus a product → the product."""
    constant, a, b = call.args[:3]
    degree = degree_of(a) + degree_of(b)
    if degree == degree_of(constant):
        return None
    call.sites.constant(call.name, "the matrix product without its bias", lambda: torch.ones(()))
    return call.kwargs.get("alpha", 1) * torch.matmul(a, b), degree


def _is_free(value: Any) -> bool:
    """Zero, infinity and nothing at all are of every degree."""
    if isinstance(value, Tensor):
        return value.numel() == 0
    return value is None or (isinstance(value, int | float) and (value == 0 or math.isinf(value)))


#: What people write for −∞: logits that no softmax shall see.
_MINUS_INFINITY = -1e4


def _masks_out(call: FunctionCall, value: Any) -> bool:
    """Whether a number, or a constant that is zero elsewhere, stands for −∞."""
    if isinstance(value, int | float):
        return value <= _MINUS_INFINITY
    if not isinstance(value, Tensor) or not value.is_floating_point() or degree_of(value):
        return False
    return call.sites.decision(
        call.name, lambda: value.numel() > 0 and bool(((value == 0) | (value <= _MINUS_INFINITY)).all())
    )


def _at_one_degree(call: FunctionCall, operands: list[Any]) -> tuple[list[Any], float] | None:
    """Bring operands to one degree, that of the x that scales least: constants times RMS(x)/r, others over theirs."""
    degrees = [degree_of(value) for value in operands]
    level = min((d for d in degrees if d), key=abs, default=0.0)
    odd = [i for i, d in enumerate(degrees) if d != level and not _is_free(operands[i])]
    if not odd:
        return None
    factor = call.ratio(operands[degrees.index(level)], f"{call.name} with its constant times RMS(x)/r")
    changed = list(operands)
    for i in odd:
        value = operands[i]
        if degrees[i]:
            value = safe_divide(value, call.ratio(value, f"{call.name} of values brought to one degree"))
        changed[i] = value * factor
    return changed, level


def sum_at_one_degree(call: FunctionCall) -> tuple[Any, float] | None:
    a, b = call.get(0, "input"), call.get(1, "other")
    if call.name == "add" and isinstance(a, Tensor) and degree_of(a) and not call.kwargs and _masks_out(call, b):
        return torch.where(torch.as_tensor(b, device=a.device) < 0, -math.inf, a), degree_of(a)
    level = _at_one_degree(call, [a, b])
    if level is None:
        return None
    (a, b), degree = level
    call.put(0, "input", a)
    call.put(1, "other", b)
    return call.run(), degree


def list_at_one_degree(call: FunctionCall) -> tuple[Any, float] | None:
    dim = call.get(1, "dim", 0)
    level = None if dim == 0 else _at_one_degree(call, list(call.get(0, "tensors")))
    if level is None:
        return None
    call.put(0, "tensors", level[0])
    return call.run(), level[1]


def choice_at_one_degree(call: FunctionCall) -> tuple[Any, float] | None:
    """where(condition, a, b) and x.masked_fill(mask, value)."""
    fill = call.name == "masked_fill"
    condition, a = (
        (call.get(1, "mask"), call.get(0, "input")) if fill else (call.get(0, "condition"), call.get(1, "input"))
    )
    b = call.get(2, "value" if fill else "other")
    a, b = (-math.inf if degree_of(other) and _masks_out(call, v) else v for v, other in ((a, b), (b, a)))
    level = _at_one_degree(call, [a, b])
    if level is None and -math.inf in (v for v in (a, b) if isinstance(v, float)):
        level = [a, b], max(degree_of(a), degree_of(b), key=abs)
    if level is None:
        return None
    (a, b), degree = level
    return (torch.where(condition, b, a) if fill else torch.where(condition, a, b)), degree


def clamped(call: FunctionCall) -> tuple[Any, float] | None:
    x = call.get(0, "input")
    bounds = {k: v for k, v in (("min", call.get(1, "min")), ("max", call.get(2, "max"))) if v is not None}
    if call.name in {"clamp_min", "clamp_max"}:
        bounds = {call.name[-3:]: call.get(1, call.name[-3:])}
    degree = degree_of(x)
    if degree == 0 or all(_is_free(v) for v in bounds.values()):
        return None
    factor = call.ratio(x, "clamp with bounds times RMS(x)/r")
    return torch.clamp(x, **{k: torch.as_tensor(v) * factor for k, v in bounds.items()}), degree


def gated(call: FunctionCall) -> tuple[Any, float] | None:
    x = call.get(0, "input")
    if degree_of(x) == 0:
        return None
    after = f"{call.name}(s/ρ), ρ = RMS(s)/r"
    if call.name in {"softmax", "log_softmax"}:
        call.put(0, "input", _unit_logits(call, x, after))
    else:
        call.put(0, "input", safe_divide(x, call.ratio(x, after)))
    return call.run(), 0.0


def _unit_logits(call: FunctionCall, s: Tensor, after: str) -> Tensor:
    """s/ρ over what is not masked out; logits of which all are masked out are all the same, and not NaN."""
    seen = s != -math.inf
    finite = torch.where(seen, s, 0.0)
    unit = safe_divide(finite, call.ratio(finite, after, tokens=(-2, -1), entries=seen))
    some = seen.any(call.get(1, "dim", -1), keepdim=True)
    return torch.where(seen | ~some, unit, -math.inf)


def straightened(call: FunctionCall) -> tuple[Any, float] | None:
    x = call.get(0, "input")
    degree = degree_of(x)
    if degree == 0:
        return None
    plain = getattr(F, call.name, None) or getattr(torch, call.name)
    rest = {k: v for k, v in call.kwargs.items() if k not in {"inplace", "input"}}
    positional = [v for v in call.args[1:] if not isinstance(v, bool)]
    slopes = call.sites.constant(
        call.name, "two slopes", lambda: fit_slopes(lambda z: plain(z, *positional, **rest), x).float()
    )
    return two_slopes(x, slopes), degree


def safe_at_zero(call: FunctionCall) -> tuple[Any, float] | None:
    """Divisions and roots where x = 0, at which an epsilon times RMS(x)/r guards no longer."""
    x = call.get(0, "input")
    degree = degree_of(x)
    if call.name == "div":
        other = call.get(1, "other")
        if degree_of(other) == 0 or "rounding_mode" in call.kwargs:
            return None
        return x / infinite_at_zero(other), degree - degree_of(other)
    if degree == 0:
        return None
    if call.name == "rdiv":
        other = call.get(1, "other")
        return other / infinite_at_zero(x), degree_of(other) - degree
    if call.name == "sqrt":
        return root(x), degree * POWERS["sqrt"]
    return getattr(torch, call.name)(infinite_at_zero(x)), degree * POWERS[call.name]


#: Where each normalising function has its shift.
SHIFT = {"layer_norm": 3, "group_norm": 3, "instance_norm": 4, "batch_norm": 4}


def scale_keeping(call: FunctionCall) -> tuple[Any, float] | None:
    x = call.get(0, "input")
    degree = degree_of(x)
    if degree == 0:
        return None
    if call.name in SHIFT:
        call.put(SHIFT[call.name], "bias", None)
    if call.name == "batch_norm" and not call.get(5, "training", default=False):
        call.sites.constant(call.name, "batch_norm without mean and shift", lambda: torch.ones(()))
        call.put(1, "running_mean", torch.zeros_like(call.get(1, "running_mean")))
        return call.run(), degree
    tokens = None if call.name in {"layer_norm", "rms_norm"} else (-1,)
    rho = call.ratio(x, f"ρ·{call.name}(x/ρ) without shift, ρ = RMS(x)/r", tokens=tokens)
    call.put(0, "input", safe_divide(x, rho))
    return rho * call.run(), degree


def unit_queries(call: FunctionCall) -> tuple[Any, float] | None:
    query, key, value = (call.get(i, n) for i, n in enumerate(("query", "key", "value")))
    if degree_of(query) == 0 and degree_of(key) == 0:
        return None
    whole_layer = call.name == "multi_head_attention_forward"
    for i, (name, x) in enumerate((("query", query), ("key", key))):
        rho = call.ratio(x, "QK-normalised attention", *((1, (0,)) if whole_layer else (0, (-2,))))
        call.put(i, name, safe_divide(x, rho))
    if whole_layer:
        for i, name in ((6, "in_proj_bias"), (7, "bias_k"), (8, "bias_v"), (12, "out_proj_bias")):
            call.put(i, name, None)
    return call.run(), degree_of(value)


def _named(rewrite: Rewrite, *names: str) -> dict[str, Rewrite]:
    return dict.fromkeys(names, rewrite)


REWRITES: dict[str, Rewrite] = {
    **_named(without_bias, "linear", "bilinear", "conv1d", "conv2d", "conv3d"),
    **_named(without_bias, "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    **_named(product_only, "addmm", "baddbmm"),
    **_named(sum_at_one_degree, "add", "sub", "rsub", "maximum", "minimum", "subtract"),
    **_named(list_at_one_degree, "cat", "concat", "concatenate", "stack", "hstack"),
    **_named(choice_at_one_degree, "where", "masked_fill"),
    **_named(clamped, "clamp", "clip", "clamp_min", "clamp_max"),
    **_named(gated, "softmax", "log_softmax", "softmin", "sigmoid", "hardsigmoid", "exp", "normalize"),
    **_named(straightened, "gelu", "silu", "elu", "selu", "celu", "hardswish", "mish", "softplus", "relu6"),
    **_named(straightened, "hardtanh", "tanh", "logsigmoid", "softsign", "hardshrink", "softshrink"),
    **_named(straightened, "tanhshrink", "threshold"),
    **_named(scale_keeping, "layer_norm", "group_norm", "instance_norm", "rms_norm", "local_response_norm"),
    **_named(scale_keeping, "batch_norm"),
    **_named(safe_at_zero, "div", "rdiv", "reciprocal", "rsqrt", "sqrt"),
    **_named(unit_queries, "scaled_dot_product_attention", "multi_head_attention_forward"),
}
