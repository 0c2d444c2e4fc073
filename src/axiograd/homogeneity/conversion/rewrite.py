"""Forward passes that run a module's own code and rewrite, as it runs, the functions that are not homogeneous.

`RewrittenForward` takes the place of one module's `forward` and enters a `TorchFunctionMode` there. The mode knows the
degree of every tensor that it has seen (numbers and tensors never seen are constants of degree 0), and replaces a call
only where degrees demand it. Degrees are a guide here, followed by the name of the function: the certificate is the
judge of the result. What a rewrite needs to know of the data, a radius or two slopes, is a buffer of the module,
calibrated on the example inputs.
"""

import functools
import inspect
import math
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from axiograd.errors import ConversionError
from axiograd.homogeneity.conversion.arguments import Roles
from axiograd.homogeneity.conversion.scale import (
    infinite_at_zero,
    root,
    safe_divide,
    sample_rms,
    whole_rms,
    without_padding,
)
from axiograd.homogeneity.rules import lookup
from axiograd.homogeneity.walk import result_degree

# ------------------------------------------------------------------------------------------------------------- degrees


class _State(threading.local):
    degrees: WeakTensorKeyDictionary | None = None
    rewriter: "Rewriter | None" = None


_state = _State()

#: Results that do not scale, whatever goes in.
_CONSTANT = {"empty_like", "new_empty", "ones_like", "new_ones", "zeros_like", "new_zeros", "full_like", "new_full"}
_CONSTANT |= {"new_tensor", "rand_like", "randn_like", "randint_like", "uniform", "normal", "bernoulli", "exponential"}
_CONSTANT |= {"random", "sign", "sgn", "normalize"}
#: Results that scale as their first argument does.
_FIRST = {"as", "expand_as", "fill", "get", "reshape_as", "to", "type_as", "view_as", "zero"}
#: Results that scale as the product of their arguments.
_PRODUCT = {
    "mul",
    "multiply",
    "mm",
    "bmm",
    "mv",
    "matmul",
    "dot",
    "vdot",
    "inner",
    "outer",
    "ger",
    "einsum",
    "tensordot",
}
_PRODUCT |= {"kron", "cross", "linear", "bilinear", "conv1d", "conv2d", "conv3d"}
_PRODUCT |= {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
_POWERS = {"square": 2.0, "sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0, "var": 2.0}


@contextmanager
def _acting(rewriter: "Rewriter | None") -> Iterator[None]:
    """Make one rewriter the one that acts; the outermost one brings the table of degrees."""
    before, degrees = _state.rewriter, _state.degrees
    _state.rewriter = rewriter
    if rewriter is not None and degrees is None:
        _state.degrees = WeakTensorKeyDictionary()
    try:
        yield
    finally:
        _state.rewriter, _state.degrees = before, degrees


def without_rewrites() -> Any:
    """Nothing is rewritten inside: for layers that are homogeneous already."""
    return _acting(None)


def track(tree: Any, degree: float) -> None:
    """Note the degree of every floating-point tensor in a structure, if a rewritten forward pass is under way."""
    if _state.degrees is not None:
        for leaf in tree_leaves(tree):
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                _state.degrees[leaf] = degree


def degree_of(value: Any, default: float = 0.0) -> float:
    if not isinstance(value, Tensor):
        return 0.0
    return default if _state.degrees is None else float(_state.degrees.get(value, default))


def _largest(degrees: Sequence[float]) -> float:
    return max(degrees, key=abs, default=0.0)


def _follow(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """The degree of a function's result from those of its arguments."""
    first = degree_of(args[0]) if args else 0.0
    degrees = [degree_of(leaf) for leaf in tree_leaves((args, kwargs))]
    if name in _CONSTANT:
        return 0.0
    if name in _FIRST:
        return first
    if name in _PRODUCT:
        return sum(degrees)
    if name in _POWERS:
        return first * _POWERS[name]
    if name == "div":
        return first - degree_of(args[1])
    if name == "copy":
        return degree_of(args[1])
    if name == "pow":
        return first * float(args[1]) if isinstance(args[1], int | float) else first
    if name == "scaled_dot_product_attention":
        return degree_of(kwargs.get("value", args[2] if len(args) > 2 else None))  # noqa: PLR2004
    return _largest(degrees)


# ------------------------------------------------------------------------------------------------------------ rewrites


class FunctionCall:
    """One function call of a forward pass, with its arguments by position or name."""

    def __init__(
        self, rewriter: "Rewriter", name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.rewriter, self.name, self.func = rewriter, name, func
        self.args, self.kwargs = list(args), dict(kwargs)
        raw = getattr(func, "__name__", "")
        self.in_place = (
            (raw.endswith("_") and not raw.startswith("__")) or raw.startswith("__i") or bool(kwargs.get("inplace"))
        )

    def get(self, index: int, name: str, default: Any = None) -> Any:
        return self.args[index] if index < len(self.args) else self.kwargs.get(name, default)

    def put(self, index: int, name: str, value: Any) -> None:
        if index < len(self.args):
            self.args[index] = value
        else:
            self.kwargs[name] = value

    def run(self) -> Any:
        if self.in_place and torch.is_grad_enabled():  # the backward pass needs what would be overwritten
            self.args[0] = self.args[0].clone()
        return self.func(*self.args, **self.kwargs)

    def rho(
        self,
        x: Tensor,
        after: str,
        batch_dim: int | None = 0,
        tokens: Sequence[int] | None = None,
        entries: Tensor | None = None,
        *,
        follows: bool = False,
    ) -> Tensor:
        """ρ = RMS(x)/r per sample: of x's own degree, and 1 at the data's scale."""
        radius = self.rewriter.constant(
            self.name, after, lambda: whole_rms(x, batch_dim, tokens, entries), follows=follows
        )
        return (sample_rms(x, batch_dim, tokens, entries) / radius).to(x.dtype)


#: A rewrite returns the result and its degree, or None to leave the call as it is.
Result = tuple[Any, float] | None


def _without_bias(call: FunctionCall) -> Result:
    """linear, convolutions: W h + b → W h."""
    index = 3 if call.name == "bilinear" else 2
    x, weight, bias = call.get(0, "input"), call.get(1, "weight"), call.get(index, "bias")
    if bias is None or degree_of(x) == 0:
        return None
    call.rewriter.note(call.name, f"{call.name} without bias")
    call.put(index, "bias", None)
    return call.run(), degree_of(x) + degree_of(weight)


def _product_only(call: FunctionCall) -> Result:
    """addmm, baddbmm: a constant plus a product → the product."""
    constant, a, b = call.args[:3]
    degree = degree_of(a) + degree_of(b)
    if degree == degree_of(constant):
        return None
    call.rewriter.note(call.name, "the matrix product without its bias")
    return call.kwargs.get("alpha", 1) * torch.matmul(a, b), degree


#: What people write for −∞: logits that no softmax shall see.
_MINUS_INFINITY = -1e4


def _masks_out(call: FunctionCall, value: Any) -> bool:
    """Whether a number, or a constant that is zero elsewhere, stands for −∞."""
    if isinstance(value, int | float):
        return value <= _MINUS_INFINITY
    if not isinstance(value, Tensor) or not value.is_floating_point() or degree_of(value):
        return False
    return call.rewriter.decision(
        call.name, lambda: value.numel() > 0 and bool(((value == 0) | (value <= _MINUS_INFINITY)).all())
    )


def _is_free(value: Any) -> bool:
    """Zero, infinity and nothing at all are of every degree."""
    if isinstance(value, Tensor):
        return value.numel() == 0
    return value is None or (isinstance(value, int | float) and (value == 0 or math.isinf(value)))


def _at_one_degree(call: FunctionCall, operands: list[Any]) -> tuple[list[Any], float] | None:
    """Bring operands to the degree of the x that scales least: constants times ρ(x), others divided by their own ρ."""
    degrees = [degree_of(value) for value in operands]
    degree = min((d for d in degrees if d), key=abs, default=0.0)
    odd = [i for i, d in enumerate(degrees) if d != degree and not _is_free(operands[i])]
    if not odd:
        return None
    factor = call.rho(operands[degrees.index(degree)], f"{call.name} with its constant times RMS(x)/r")
    changed = list(operands)
    for i in odd:
        value = operands[i]
        if degrees[i]:
            value = safe_divide(value, call.rho(value, f"{call.name} of values brought to one degree"))
        changed[i] = value * factor
    return changed, degree


def _sum_at_one_degree(call: FunctionCall) -> Result:
    """x + constant, maximum(x, constant): the constant times ρ(x)."""
    a, b = call.get(0, "input"), call.get(1, "other")
    if call.name == "add" and isinstance(a, Tensor) and degree_of(a) and not call.kwargs and _masks_out(call, b):
        return torch.where(torch.as_tensor(b, device=a.device) < 0, -math.inf, a), degree_of(a)
    found = _at_one_degree(call, [a, b])
    if found is None:
        return None
    (a, b), degree = found
    call.put(0, "input", a)
    call.put(1, "other", b)
    return call.run(), degree


def _list_at_one_degree(call: FunctionCall) -> Result:
    """cat, stack: constants times ρ of a tensor beside them."""
    found = None if call.get(1, "dim", 0) == 0 else _at_one_degree(call, list(call.get(0, "tensors")))
    if found is None:
        return None
    call.put(0, "tensors", found[0])
    return call.run(), found[1]


def _choice_at_one_degree(call: FunctionCall) -> Result:
    """where(condition, a, b), and x.masked_fill(mask, value) as where(mask, value, x)."""
    if call.name == "masked_fill":
        condition, a, b = call.get(1, "mask"), call.get(2, "value"), call.get(0, "input")
    else:
        condition, a, b = call.get(0, "condition"), call.get(1, "input"), call.get(2, "other")
    a, b = (-math.inf if degree_of(other) and _masks_out(call, v) else v for v, other in ((a, b), (b, a)))
    found = _at_one_degree(call, [a, b])
    if found is None and any(isinstance(v, float) and v == -math.inf for v in (a, b)):
        found = [a, b], _largest([degree_of(a), degree_of(b)])
    if found is None:
        return None
    (a, b), degree = found
    return torch.where(condition, a, b), degree


def _clamped(call: FunctionCall) -> Result:
    """clamp(x, low, high) → clamp(x, ρ·low, ρ·high)."""
    x = call.get(0, "input")
    bounds = {"min": call.get(1, "min"), "max": call.get(2, "max")}
    if call.name in {"clamp_min", "clamp_max"}:
        bounds = {call.name[-3:]: call.get(1, call.name[-3:])}
    bounds = {name: value for name, value in bounds.items() if value is not None}
    if degree_of(x) == 0 or all(_is_free(value) for value in bounds.values()):
        return None
    factor = call.rho(x, "clamp with bounds times RMS(x)/r")
    scaled = {name: torch.as_tensor(value) * factor for name, value in bounds.items()}
    return torch.clamp(x, **scaled), degree_of(x)


def _gated(call: FunctionCall) -> Result:
    """σ(s) → σ(s/ρ), of degree 0; ρ·σ(s/ρ) where the owner is a gate that must have degree 1."""
    s = call.get(0, "input")
    if degree_of(s) == 0:
        return None
    after = f"{call.name}(s/ρ), ρ = RMS(s)/r"
    if call.name in {"softmax", "log_softmax"}:
        # Over what is not masked out; logits that are all masked out are all the same, and not NaN.
        seen = s != -math.inf
        finite = torch.where(seen, s, 0.0)
        rho = call.rho(finite, after, tokens=(-2, -1), entries=seen)
        some = seen.any(call.get(1, "dim", -1), keepdim=True)
        unit = torch.where(seen | ~some, safe_divide(finite, rho), -math.inf)
    else:
        rho = call.rho(s, after)
        unit = safe_divide(s, rho)
    if call.name == "hardsigmoid":  # torch has no second derivative for it, which a prior on attributions needs
        value = (unit / 6 + 0.5).clamp(0, 1)
    else:
        call.put(0, "input", unit)
        value = call.run()
    return (rho * value, degree_of(s)) if call.rewriter.gates_scale() else (value, 0.0)


def _gated_half(call: FunctionCall) -> Result:
    """GLU: a·σ(b) → a·σ(b/ρ), ρ = RMS(b)/r."""
    x = call.get(0, "input")
    if degree_of(x) == 0:
        return None
    a, b = x.chunk(2, call.get(1, "dim", -1))
    return a * torch.sigmoid(safe_divide(b, call.rho(b, "a·σ(b/ρ), ρ = RMS(b)/r"))), degree_of(x)


def two_slopes(x: Tensor, slopes: Tensor) -> Tensor:
    """φ(z) = a₁·z for z > 0 and a₂·z otherwise (Proposition 3.8).

    >>> two_slopes(torch.tensor([-2.0, 2.0]), torch.tensor([1.0, 0.5]))
    tensor([-1.,  2.])
    """
    return x * torch.where(x > 0, slopes[0], slopes[1]).to(x.dtype)


def fit_slopes(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Least squares on the values that the activation sees: aᵢ = Σ φ(z)·z / Σ z² over its side of zero.

    A side on which there are no values is fitted to the standard normal distribution.

    >>> fit_slopes(torch.nn.functional.relu6, torch.tensor([-1.0, 3.0, 12.0]))
    tensor([0.5294, 0.0000], dtype=torch.float64)
    """
    z = x.detach().double().flatten()
    slopes = []
    for sign in (1, -1):
        side = z[sign * z > 0]
        if not len(side):
            normal = _normal_values().to(z.device)
            side = normal[sign * normal > 0]
        slopes.append((function(side.clone()) * side).sum() / side.square().sum())
    return torch.stack(slopes)


@functools.cache
def _normal_values() -> Tensor:
    quantiles = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    values: Tensor = torch.special.ndtri(quantiles)
    return values


def _with_two_slopes(call: FunctionCall) -> Result:
    x = call.get(0, "input")
    if degree_of(x) == 0:
        return None
    plain = getattr(F, call.name, None) or getattr(torch, call.name)
    named = {k: v for k, v in call.kwargs.items() if k not in {"inplace", "input"}}
    positional = [v for v in call.args[1:] if not isinstance(v, bool)]  # a flag is "inplace"
    slopes = call.rewriter.constant(
        call.name, "two slopes", lambda: fit_slopes(lambda z: plain(z, *positional, **named), x).float()
    )
    return two_slopes(x, slopes), degree_of(x)


def _safe_at_zero(call: FunctionCall) -> Result:
    """Divisions and roots at x = 0, where an epsilon times ρ(x) is zero too."""
    x, other = call.get(0, "input"), call.get(1, "other")
    degree = degree_of(x)
    if call.name == "div":
        if degree_of(other) == 0 or "rounding_mode" in call.kwargs:
            return None
        return x / infinite_at_zero(other), degree - degree_of(other)
    if degree == 0:
        return None
    if call.name == "rdiv":
        return other / infinite_at_zero(x), degree_of(other) - degree
    if call.name == "sqrt":
        return root(x), degree * _POWERS["sqrt"]
    return getattr(torch, call.name)(infinite_at_zero(x)), degree * _POWERS[call.name]


#: Where each normalising function has its shift.
_SHIFT = {"layer_norm": 3, "group_norm": 3, "instance_norm": 4, "batch_norm": 4}


def _scale_keeping(call: FunctionCall) -> Result:
    """N(x) → ρ·N(x/ρ) without shift: N itself at the data's scale, its epsilon included, and of degree 1."""
    x = call.get(0, "input")
    if degree_of(x) == 0:
        return None
    if call.name in _SHIFT:
        call.put(_SHIFT[call.name], "bias", None)
    if call.name == "batch_norm" and not call.get(5, "training", default=False):
        call.rewriter.note(call.name, "batch_norm without mean and shift")
        call.put(1, "running_mean", torch.zeros_like(call.get(1, "running_mean")))
        return call.run(), degree_of(x)
    tokens = None if call.name in {"layer_norm", "rms_norm"} else (-1,)
    rho = call.rho(x, f"ρ·{call.name}(x/ρ) without shift, ρ = RMS(x)/r", tokens=tokens, follows=True)
    call.put(0, "input", safe_divide(x, rho))
    return rho * call.run(), degree_of(x)


def _unit_queries(call: FunctionCall) -> Result:
    """softmax(QKᵀ/√d)·V with Q and K computed from x/ρ, and V from x; no biases."""
    names = ("query", "key", "value")
    query, key, value = (call.get(i, name) for i, name in enumerate(names))
    if degree_of(query) == 0 and degree_of(key) == 0:
        return None
    whole_layer = call.name == "multi_head_attention_forward"  # which has the tokens first
    for i, x in enumerate((query, key)):
        batch_dim, tokens = (1 if x.dim() > 2 else None, (0,)) if whole_layer else (0, (-2,))  # noqa: PLR2004
        rho = call.rho(x, "QK-normalised attention", batch_dim, tokens)
        call.put(i, names[i], safe_divide(x, rho))
    if whole_layer:
        for i, name in ((6, "in_proj_bias"), (7, "bias_k"), (8, "bias_v"), (12, "out_proj_bias")):
            call.put(i, name, None)
    return call.run(), degree_of(value)


def _recurrent(call: FunctionCall) -> Result:
    """R(x, h) → ρ·R(x/ρ, h/ρ), ρ = RMS(x)/r over the sequence: R itself at the data's scale, biases included."""
    x, state = call.args[:2]
    if degree_of(x) == 0 or x.dim() != 3:  # noqa: PLR2004  # a packed sequence has lost its batch
        return None
    rho = call.rho(x, f"ρ·{call.name}(x/ρ), ρ = RMS(x)/r", 0 if call.args[-1] else 1)
    per_state = rho.reshape(1, -1, 1)
    call.args[0] = safe_divide(x, rho)
    call.args[1] = tree_map(lambda h: safe_divide(h, per_state) if degree_of(h) else h, state)
    output, *states = call.run()
    return (rho * output, *(per_state * h for h in states)), degree_of(x)


Rewrite = Callable[[FunctionCall], Result]
REWRITES: dict[str, Rewrite] = {
    name: rewrite
    for rewrite, names in {
        _without_bias: "linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
        _product_only: "addmm baddbmm",
        _sum_at_one_degree: "add sub rsub subtract maximum minimum",
        _list_at_one_degree: "cat concat concatenate stack hstack",
        _choice_at_one_degree: "where masked_fill",
        _clamped: "clamp clip clamp_min clamp_max",
        _gated: "softmax log_softmax softmin sigmoid hardsigmoid exp normalize",
        _gated_half: "glu",
        _with_two_slopes: "gelu silu elu selu celu hardswish mish softplus relu6 hardtanh tanh logsigmoid softsign "
        "hardshrink softshrink tanhshrink threshold",
        _safe_at_zero: "div rdiv reciprocal rsqrt sqrt",
        _scale_keeping: "layer_norm group_norm instance_norm rms_norm local_response_norm batch_norm",
        _unit_queries: "scaled_dot_product_attention multi_head_attention_forward",
        _recurrent: "lstm gru rnn_tanh rnn_relu",
    }.items()
    for name in names.split()
}


# ------------------------------------------------------------------------------------------------------------ the mode


#: Modules that are gates by themselves: where degree 0 leaves the output no degree, they are activations of degree 1.
GATES = (nn.Hardsigmoid, nn.LogSoftmax, nn.Sigmoid, nn.Softmax, nn.Softmax2d, nn.Softmin)
#: How fast the radius of a norm follows the data in train mode, as a BatchNorm's statistics do.
_MOMENTUM = 0.1


class RewrittenForward:
    """Stands in the place of one module's `forward`; its calibrated constants are buffers of that module."""

    def __init__(
        self, module: nn.Module, roles: Roles | None = None, *, rewrites: bool = True, gate_degree: float = 0.0
    ) -> None:
        #: The module, and the one whose code runs, which in a dry run of a whole model is one inside of it.
        self.module = self.owner = module
        #: Of the whole model's arguments, if this is its forward.
        self.roles = roles
        #: Whether functions are rewritten, or padding is masked out alone.
        self.rewrites = rewrites
        self.gate_degree = gate_degree
        self.calibrating = False
        self.calls: Counter[str] = Counter()
        #: What was rewritten: before, after, and the line of the user's code.
        self.edits: dict[tuple[str, str, str], None] = {}
        #: What was decided on the example inputs, by site.
        self.decisions: dict[str, bool] = {}
        self.on_rewrite: Callable[[nn.Module], None] | None = None

    @property
    def __code__(self) -> CodeType:  # torch.export reads the names of the arguments from it
        code: CodeType = type(self.module).forward.__code__
        return code

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(type(self.module).forward.__get__(self.module))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.roles is None:
            return self._run(args, kwargs)
        with without_padding(list(self.roles.masks(args, kwargs).values())):
            return self._run(args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.rewrites:
            return type(self.module).forward(self.module, *args, **kwargs)
        mode, roles = Rewriter(self), self.roles or Roles()
        with _acting(mode):
            for slot, value in roles.by_slot(args, kwargs).items():
                for leaf in tree_leaves(value):
                    track(leaf, degree_of(leaf, default=1.0 if roles.scales(slot) else 0.0))
            with mode:
                return type(self.module).forward(self.module, *args, **kwargs)

    def note(self, before: str, after: str) -> None:
        """List a rewrite among the edits."""
        if self.on_rewrite is not None:
            self.on_rewrite(self.owner)
        if self.calibrating:
            layer = _is_torchs(self.module)
            if layer and (isinstance(self.module, nn.MultiheadAttention) or not any(self.module.children())):
                before = type(self.module).__name__
            self.edits[before, after, "" if layer else _user_line()] = None

    def constant(self, site: str, fit: Callable[[], Tensor], *, follows: bool = False) -> Tensor | None:
        """The constant of one site: fitted in calibration, and later, if it follows the data, moved in train mode."""
        held = self.module._buffers.get(site)  # noqa: SLF001  # get_buffer would split a dotted name
        if self.calibrating:
            with torch.no_grad():
                value = fit().detach()
                if value.dim() == 0:  # all-zero inputs carry no scale
                    value = torch.where(value > 0, value, torch.ones_like(value))
                if held is None or self.calls[site] == 0:
                    self.module.register_buffer(site, value.clone())
                else:  # a module that is called several times is calibrated to the mean of all calls
                    held.lerp_(value, 1.0 / (self.calls[site] + 1))
            self.calls[site] += 1
            return self.module._buffers[site]  # noqa: SLF001
        if held is None or not self.module.training:
            return held
        current = held.clone()  # the backward pass needs it after train mode, or DDP's broadcast, moved the buffer
        if follows:
            with torch.no_grad():
                held.lerp_(fit().to(held), _MOMENTUM)
        return current


class ScaleKeepingForward(RewrittenForward):
    """Stands in the place of a hand-written norm's forward: ρ·N(x/ρ), ρ = RMS(x)/r."""

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        degree = degree_of(x, default=1.0)
        with without_rewrites():
            self.note(type(self.module).__name__, "ρ·N(x/ρ), ρ = RMS(x)/r")
            radius: Any = self.constant("homogeneous_radius", lambda: whole_rms(x), follows=True)
            rho = (sample_rms(x) / radius).to(x.dtype)
            y = rho * type(self.module).forward(self.module, safe_divide(x, rho), *args, **kwargs)
        track(y, degree)
        return y


_SAME_FUNCTION = {"truediv": "div", "rtruediv": "rdiv", "divide": "div", "true_divide": "div", "itruediv": "div"}
_SAME_FUNCTION |= {"radd": "add", "iadd": "add", "isub": "sub", "rmul": "mul", "imul": "mul"}
_SAME_FUNCTION |= {"log_sigmoid": "logsigmoid"}


class Rewriter(TorchFunctionMode):
    """One run of a rewritten forward; its constants are numbered by the order of execution."""

    def __init__(self, forward: RewrittenForward) -> None:
        super().__init__()
        self.forward = forward
        self.ordinals: Counter[str] = Counter()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        if _state.rewriter is not self:
            return func(*args, **kwargs)
        raw = getattr(func, "__name__", "")
        name = _SAME_FUNCTION.get(raw.strip("_"), raw.strip("_"))
        if name == "setitem":
            track(args[0], _largest([degree_of(args[0]), degree_of(args[2])]))
            return func(*args)
        rewrite = REWRITES.get(name)
        call = FunctionCall(self, name, func, args, kwargs)
        if rewrite is not None and call.in_place and torch.is_grad_enabled():
            call.args[0] = args[0].clone()
            track(call.args[0], degree_of(args[0]))
        done = None if rewrite is None else rewrite(call)
        if done is None:
            degree = _follow(name, args, kwargs)
            result = func(*args, **kwargs)
            operator = _with_rule(func)
            if operator is not None:
                degree = result_degree(operator, args, kwargs, result, degree_of)
        else:
            result, degree = done
            if call.in_place and not _is_torchs(self.forward.owner):  # whose result is what callers use
                result = args[0].copy_(result)
        if isinstance(result, Tensor | tuple | list):
            track(result, degree)
        return result

    def gates_scale(self) -> bool:
        return self.forward.gate_degree == 1 and isinstance(self.forward.owner, GATES)

    def note(self, name: str, after: str) -> None:
        self.forward.note(name, after)

    def constant(self, name: str, after: str, fit: Callable[[], Tensor], *, follows: bool = False) -> Tensor:
        """The calibrated constant of this call, the n-th of its kind in this forward."""
        site = f"homogeneous_{name}_{self.ordinals[name]}"
        self.ordinals[name] += 1
        self.note(name, after)
        found = self.forward.constant(site, fit, follows=follows)
        if found is None:
            raise ConversionError(
                f"{type(self.forward.module).__name__}.forward reached {name!r} at {_user_line()} on a path that it "
                "did not take when it was converted: convert with example inputs that take this path."
            )
        return found

    def decision(self, name: str, decide: Callable[[], bool]) -> bool:
        """What was decided for this call on the example inputs; a trace has no numbers to decide on."""
        site = f"{name}?{self.ordinals[f'{name}?']}"
        self.ordinals[f"{name}?"] += 1
        if self.forward.calibrating:
            self.forward.decisions[site] = decide()
        return self.forward.decisions.get(site, False)


def _is_torchs(module: nn.Module) -> bool:
    """Whether this is a layer of PyTorch, such as nn.GELU."""
    return type(module).__module__.startswith("torch.nn.")


def _with_rule(func: Any) -> Any:
    """An operator that is not PyTorch's own and has a rule in the certificate, or None."""
    operator = getattr(func, "default", func)  # an operator may be called without its overload
    if not isinstance(operator, torch._ops.OpOverload) or operator.namespace in {"aten", "prims"}:  # noqa: SLF001
        return None
    return operator if lookup(operator._schema.name) is not None else None  # noqa: SLF001 - no public name


#: Files that a call passes through on its way from the line that makes it.
_MACHINERY = ("/axiograd/homogeneity/", "/torch/overrides", "/torch/_", "/torch/utils/", "/torch/nn/functional")


def _user_line() -> str:
    frame: FrameType | None = sys._getframe()  # noqa: SLF001  # inspect.stack() reads source files, which is slow
    while frame is not None and any(part in frame.f_code.co_filename for part in _MACHINERY):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "torch"
