"""Forward passes that run a module's own code and rewrite, as it runs, the functions that are not homogeneous.

`RewrittenForward` takes the place of one module's `forward` and is a `TorchFunctionMode` while that runs. It knows the
degree of every tensor that it has seen (numbers and tensors never seen are constants of degree 0), and replaces a call
only where degrees demand it. Degrees are a guide here, followed by the name of the function: the certificate is the
judge of the result. What a rewrite needs to know of the data, a radius or two slopes, is a buffer of the module,
calibrated on the example inputs.
"""

import functools
import inspect
import math
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from axiograd._calls import is_floating
from axiograd.errors import ConversionError
from axiograd.homogeneity.conversion.scale import (
    Roles,
    infinite_at_zero,
    per_sample,
    root,
    safe_divide,
    sample_rms,
    without_padding,
)
from axiograd.layers import mean_size, over_channels

# ------------------------------------------------------------------------------------------------------------- degrees


class _State(threading.local):
    degrees: WeakTensorKeyDictionary | None = None
    acting: "RewrittenForward | None" = None
    #: How often each kind of function was rewritten in this run.
    ordinals: Counter[str]


_state = _State()

#: Results that scale as the product of their arguments.
_PRODUCTS = {"mul", "multiply", "mm", "bmm", "mv", "matmul", "dot", "inner", "outer", "einsum", "tensordot", "linear"}
_PRODUCTS |= {"bilinear", *(f"conv{n}d" for n in (1, 2, 3)), *(f"conv_transpose{n}d" for n in (1, 2, 3))}
_POWERS = {"square": 2.0, "sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0, "var": 2.0}


@contextmanager
def _acting(forward: "RewrittenForward | None") -> Iterator[None]:
    """Make one forward the one that rewrites; the outermost one brings the table of degrees."""
    before = vars(_state).copy()
    _state.acting, _state.ordinals = forward, Counter()
    if forward is not None and _state.degrees is None:
        _state.degrees = WeakTensorKeyDictionary()
    try:
        yield
    finally:
        vars(_state).clear()
        vars(_state).update(before)


def without_rewrites() -> Any:
    """Nothing is rewritten inside: for layers that are homogeneous already."""
    return _acting(None)


def track(tree: Any, degree: float) -> None:
    """Note the degree of every floating-point tensor in a structure, if a rewritten forward pass is under way."""
    if _state.degrees is not None:
        for leaf in tree_leaves(tree):
            if is_floating(leaf):
                _state.degrees[leaf] = degree


def degree_of(value: Any, default: float = 0.0) -> float:
    if not isinstance(value, Tensor):
        return 0.0
    return default if _state.degrees is None else float(_state.degrees.get(value, default))


def _follow(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """The degree of a function's result from those of its arguments."""
    first = degree_of(args[0]) if args else 0.0
    degrees = [degree_of(leaf) for leaf in tree_leaves((args, kwargs))]
    if name.startswith("new_") or name.endswith("_like") or name in {"sign", "sgn", "normalize"}:
        return 0.0
    if name.endswith("_as") or name in {"to", "get", "fill", "zero"}:
        return first
    if name in _PRODUCTS:
        return sum(degrees)
    if name in _POWERS:
        return first * _POWERS[name]
    if name in {"div", "copy"}:
        other = degree_of(args[1])
        return first - other if name == "div" else other
    if name == "pow":
        return first * float(args[1]) if isinstance(args[1], int | float) else first
    if name == "scaled_dot_product_attention":
        return degree_of(kwargs.get("value", args[2] if len(args) > 2 else None))  # noqa: PLR2004
    return max(degrees, key=abs, default=0.0)


# ------------------------------------------------------------------------------------------------------------ rewrites


class FunctionCall:
    """One function call of a forward pass, with its arguments by position or name."""

    def __init__(
        self, forward: "RewrittenForward", name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: Any
    ) -> None:
        self.forward, self.name, self.func = forward, name, func
        self.args, self.kwargs = list(args), dict(kwargs)
        raw = getattr(func, "__name__", "")
        self.in_place = raw.startswith("__i") or (raw.endswith("_") and raw[0] != "_") or bool(kwargs.get("inplace"))

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

    def rho(self, x: Tensor, after: str, *where: Any, follows: bool = False) -> Tensor:
        """ρ = RMS(x)/r per sample: of x's own degree, and 1 at the data's scale; `where` as in `sample_rms`."""
        return self.forward.rho(self.name, after, sample_rms(x, *where), follows=follows).to(x.dtype)

    def size(self, x: Tensor, after: str) -> Tensor:
        """What a constant beside x is multiplied by: ρ, or, where biases are carried, m(x)/m̄."""
        if self.forward.carries:
            return self.forward.rho(self.name, f"{after} m(x)/m̄", mean_size(x)).to(x.dtype)
        return self.rho(x, f"{after} RMS(x)/r")


#: A rewrite returns the result and its degree, or None to leave the call as it is.
Result = tuple[Any, float] | None


def _without_bias(call: FunctionCall) -> Result:
    """linear, convolutions: W h + b → W h, or W h + b·m(W h)/m̄."""
    index = 3 if call.name == "bilinear" else 2
    x, weight, bias = call.get(0, "input"), call.get(1, "weight"), call.get(index, "bias")
    if bias is None or degree_of(x) == 0:
        return None
    call.put(index, "bias", None)
    made = call.run()
    shaped = over_channels(bias, made) if "conv" in call.name else bias
    return _with_constant(call, made, shaped), degree_of(x) + degree_of(weight)


def _product_only(call: FunctionCall) -> Result:
    """addmm, baddbmm: a constant plus a product → the product, or the product with a carried constant."""
    constant, a, b = call.args[:3]
    degree = degree_of(a) + degree_of(b)
    if degree == degree_of(constant):
        return None
    made = call.kwargs.get("alpha", 1) * torch.matmul(a, b)
    return _with_constant(call, made, call.kwargs.get("beta", 1) * constant), degree


def _with_constant(call: FunctionCall, made: Tensor, constant: Tensor) -> Tensor:
    if not call.forward.carries:
        call.forward.note(call.name, f"{call.name} without bias")
        return made
    return made + constant * call.forward.rho(call.name, f"{call.name} with a carried bias", mean_size(made))


#: What people write for −∞: logits that no softmax shall see.
_MINUS_INFINITY = -1e4


def _is_free(value: Any) -> bool:
    """Zero, infinity and nothing at all are of every degree."""
    if isinstance(value, Tensor):
        return value.numel() == 0
    return value is None or (isinstance(value, int | float) and (value == 0 or math.isinf(value)))


#: Where those operands are that must have one degree; by default, the first two arguments.
_OPERANDS: dict[str, tuple[tuple[int, str], ...]] = {
    "where": ((1, "input"), (2, "other")),
    "masked_fill": ((0, "input"), (2, "value")),
    "clamp": ((0, "input"), (1, "min"), (2, "max")),
    "clip": ((0, "input"), (1, "min"), (2, "max")),
    "clamp_min": ((0, "input"), (1, "min")),
    "clamp_max": ((0, "input"), (1, "max")),
}


def _rescale(call: FunctionCall, operands: list[Any], odd: list[int], like: int) -> None:
    """Bring the odd ones among operands to the degree of another, by ρ of that one and, if they scale, their own."""
    for i in odd:
        value = operands[i]
        if degree_of(value):
            value = safe_divide(value, call.rho(value, f"{call.name} of values brought to one degree"))
        operands[i] = value * call.size(operands[like], f"{call.name} with its constant times")


def _at_one_degree(call: FunctionCall) -> Result:
    """x + constant, cat, where, clamp …: constants times ρ of the x that scales least; others are divided by their own.

    What stands for −∞, in a mask that is added or filled in, is −∞.
    """
    listed = isinstance(call.get(0, "tensors"), tuple | list)
    places = _OPERANDS.get(call.name, ((0, "input"), (1, "other")))
    operands = list(call.get(0, "tensors")) if listed else [call.get(*place) for place in places]
    degrees = [degree_of(value) for value in operands]
    degree = min((d for d in degrees if d), key=abs, default=0.0)
    if degree == 0 or (listed and call.get(1, "dim", 0) == 0):
        return None
    hidden = None
    if call.name == "add" and is_floating(operands[1]) and not degrees[1] and not operands[1].requires_grad:
        hidden = operands[1] <= _MINUS_INFINITY
        operands[1] = torch.where(hidden, 0.0, operands[1])
    masked = call.name in {"where", "masked_fill"}
    if masked:
        operands = [-math.inf if isinstance(v, int | float) and v <= _MINUS_INFINITY else v for v in operands]
    odd = [i for i, d in enumerate(degrees) if d != degree and not _is_free(operands[i])]
    if not odd and not masked:
        return None
    if odd and call.name.startswith("cl"):  # both bounds must be tensors then
        odd = [i for i in range(1, len(operands)) if operands[i] is not None]
    _rescale(call, operands, odd, like=degrees.index(degree))
    for place, value in [((0, "tensors"), operands)] if listed else zip(places, operands, strict=True):
        call.put(*place, value)
    if masked:
        chosen = call.args if call.name == "where" else (call.get(1, "mask"), operands[1], operands[0])
        return torch.where(*chosen), degree
    value = call.run()
    return (value if hidden is None else torch.where(hidden, -math.inf, value)), degree


def _gated(call: FunctionCall) -> Result:
    """σ(s) → σ(s/ρ), of degree 0."""
    s = call.get(0, "input")
    if degree_of(s) == 0:
        return None
    after = f"{call.name}(s/ρ), ρ = RMS(s)/r"
    if call.name in {"softmax", "log_softmax"}:
        # Over what is not masked out; logits that are all masked out are all the same, and not NaN.
        seen = s != -math.inf
        finite = torch.where(seen, s, 0.0)
        some = seen.any(call.get(1, "dim", -1), keepdim=True)
        unit = safe_divide(finite, call.rho(finite, after, 0, (-2, -1), seen))
        unit = torch.where(seen | ~some, unit, -math.inf)
    else:
        unit = safe_divide(s, call.rho(s, after))
    if call.name == "hardsigmoid":  # torch has no second derivative for it, which a prior on attributions needs
        return (unit / 6 + 0.5).clamp(0, 1), 0.0
    call.put(0, "input", unit)
    return call.run(), 0.0


def two_slopes(x: Tensor, slopes: Tensor) -> Tensor:
    """φ(z) = a₁·z for z > 0 and a₂·z otherwise (Proposition 3.8).

    >>> two_slopes(torch.tensor([-2.0, 2.0]), torch.tensor([1.0, 0.5]))
    tensor([-1.,  2.])
    """
    return x * torch.where(x > 0, slopes[0], slopes[1]).to(x.dtype)


def fit_slopes(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Least squares on the values that the activation sees: aᵢ = Σ φ(z)·z / Σ z² over its side of zero.

    A side on which there are no values is fitted to ±1.

    >>> fit_slopes(torch.nn.functional.relu6, torch.tensor([-1.0, 3.0, 12.0]))
    tensor([0.5294, 0.0000], dtype=torch.float64)
    """
    z = x.detach().double().flatten()
    slopes = []
    for sign in (1, -1):
        side = z[sign * z > 0]
        side = side if len(side) else z.new_full((1,), sign)
        slopes.append((function(side.clone()) * side).sum() / side.square().sum())
    return torch.stack(slopes)


def _with_two_slopes(call: FunctionCall) -> Result:
    x = call.get(0, "input")
    if degree_of(x) == 0:
        return None
    plain = getattr(F, call.name, None) or getattr(torch, call.name)
    if call.forward.carries and call.name in {"relu6", "hardtanh"}:
        low, high = (0.0, 6.0) if call.name == "relu6" else (call.get(1, "min_val", -1.0), call.get(2, "max_val", 1.0))
        size = call.size(x, f"{call.name} with its bounds times")
        return torch.clamp(x, low * size, high * size), degree_of(x)
    named = {k: v for k, v in call.kwargs.items() if k not in {"inplace", "input"}}
    positional = [v for v in call.args[1:] if not isinstance(v, bool)]  # a flag is "inplace"
    slopes = call.forward.constant(
        call.name, "two slopes", lambda: fit_slopes(lambda z: plain(z, *positional, **named), x).float()
    )
    return two_slopes(x, slopes), degree_of(x)


def _safe_at_zero(call: FunctionCall) -> Result:
    """Divisions and roots at x = 0, where an epsilon times ρ(x) is zero too."""
    x, other = call.get(0, "input"), call.get(1, "other")
    if call.name == "rdiv":
        x, other = other, x
    degree, below = degree_of(x), degree_of(other)
    if call.name in {"div", "rdiv"}:
        plain = below == 0 or "rounding_mode" in call.kwargs
        return None if plain else (x / infinite_at_zero(other), degree - below)
    if degree == 0:
        return None
    value = root(x) if call.name == "sqrt" else getattr(torch, call.name)(infinite_at_zero(x))
    return value, degree * _POWERS[call.name]


def _scale_keeping(call: FunctionCall) -> Result:
    """N(x) → ρ·N(x/ρ): N itself at the data's scale, its epsilon included, and of degree 1."""
    x = call.get(0, "input")
    if degree_of(x) == 0:
        return None
    tokens = None if call.name in {"layer_norm", "rms_norm", "glu"} else (-1,)
    rho = call.rho(x, f"ρ·{call.name}(x/ρ), ρ = RMS(x)/r", 0, tokens, follows=call.name != "glu")
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
        where = (1 if x.dim() > 2 else None, (0,)) if whole_layer else (0, (-2,))  # noqa: PLR2004
        call.put(i, names[i], safe_divide(x, call.rho(x, "QK-normalised attention", *where)))
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


REWRITES: dict[str, Callable[[FunctionCall], Result]] = {
    name: rewrite
    for rewrite, names in {
        _without_bias: "linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
        _product_only: "addmm baddbmm",
        _at_one_degree: "add sub rsub subtract maximum minimum cat concat concatenate stack hstack where masked_fill "
        "clamp clip clamp_min clamp_max",
        _gated: "softmax log_softmax softmin sigmoid hardsigmoid exp normalize",
        _with_two_slopes: "gelu silu elu selu celu hardswish mish softplus relu6 hardtanh tanh logsigmoid softsign "
        "hardshrink softshrink tanhshrink threshold",
        _safe_at_zero: "div rdiv reciprocal rsqrt sqrt",
        _scale_keeping: "layer_norm group_norm instance_norm rms_norm local_response_norm batch_norm glu",
        _unit_queries: "scaled_dot_product_attention multi_head_attention_forward",
        _recurrent: "lstm gru rnn_tanh rnn_relu",
    }.items()
    for name in names.split()
}

_SAME_FUNCTION = {"truediv": "div", "rtruediv": "rdiv", "divide": "div", "true_divide": "div", "itruediv": "div"}
_SAME_FUNCTION |= {"radd": "add", "iadd": "add", "isub": "sub", "rmul": "mul", "imul": "mul"}
_SAME_FUNCTION |= {"log_sigmoid": "logsigmoid"}


# ------------------------------------------------------------------------------------------------------------ the mode

#: How fast the radius of a norm follows the data in train mode, as a BatchNorm's statistics do.
_MOMENTUM = 0.1


class RewrittenForward(TorchFunctionMode):
    """Stands in the place of one module's `forward`; its calibrated constants are buffers of that module.

    What a whole model returns with degree 0, behind a sigmoid or a norm of one's own, is multiplied by ρ(x).
    """

    def __init__(
        self,
        module: nn.Module,
        roles: Roles | None = None,
        degrees: Sequence[float] = (),
        *,
        rewrites: bool = True,
        carries: bool = False,
    ) -> None:
        super().__init__()
        #: The module, and the one whose code runs, which in a dry run of a whole model is one inside of it.
        self.module = self.owner = module
        #: Of the whole model's arguments, if this is its forward.
        self.roles = roles
        #: Of the arguments of a part of the model, leaf by leaf.
        self.degrees = degrees
        #: Whether functions are rewritten, or padding is masked out alone.
        self.rewrites = rewrites
        #: Whether constants are carried by the signal, or taken out and multiplied by its root mean square.
        self.carries = carries
        self.calibrating = False
        self.calls: Counter[str] = Counter()
        #: What was rewritten: before, after, and the line of the user's code.
        self.edits: dict[tuple[str, str, str], None] = {}
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
        with without_padding(self.roles.masks(args, kwargs)):
            return self._run(args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run = functools.partial(type(self.module).forward, self.module, *args, **kwargs)
        if not self.rewrites:
            return run()
        with _acting(self):
            leaves = tree_leaves((args, kwargs))
            for leaf, degree in zip(leaves, self._degrees(args, kwargs, len(leaves)), strict=True):
                track(leaf, degree_of(leaf, default=degree))
            with self:
                result = run()
            scaling = [leaf for leaf in leaves if is_floating(leaf) and degree_of(leaf)]
            return result if self.roles is None else tree_map(lambda y: self._at_degree_one(y, scaling), result)

    def _degrees(self, args: tuple[Any, ...], kwargs: dict[str, Any], n: int) -> Sequence[float]:
        """Of all leaves of a call, unless they are known."""
        if self.roles is not None:
            slots = self.roles.by_slot(args, kwargs).items()
            return [float(self.roles.scales(slot)) for slot, value in slots for _ in tree_leaves(value)]
        return self.degrees if len(self.degrees) == n else [1.0] * n

    def _at_degree_one(self, y: Any, inputs: list[Tensor]) -> Any:
        if not is_floating(y) or degree_of(y) or not inputs or not y.dim() or y.shape[0] != inputs[0].shape[0]:
            return y
        rho = self.rho("output", "the output times RMS(x)/r", sample_rms(inputs[0]))
        return y * per_sample(rho.flatten(), y)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        if _state.acting is not self:
            return func(*args, **kwargs)
        raw = getattr(func, "__name__", "")
        name = _SAME_FUNCTION.get(raw.strip("_"), raw.strip("_"))
        if name == "setitem":
            track(args[0], max(degree_of(args[0]), degree_of(args[2]), key=abs))
            return func(*args)
        rewrite, call = REWRITES.get(name), FunctionCall(self, name, func, args, kwargs)
        if rewrite is not None and call.in_place and torch.is_grad_enabled():
            call.args[0] = args[0].clone()
            track(call.args[0], degree_of(args[0]))
        done = None if rewrite is None else rewrite(call)
        if done is None:
            degree = _follow(name, args, kwargs)
            result = func(*args, **kwargs)
        else:
            result, degree = done
            if call.in_place and not is_torchs(self.owner):  # whose result is what callers use
                result = args[0].copy_(result)
        if isinstance(result, Tensor | tuple | list):
            track(result, degree)
        return result

    def note(self, before: str, after: str) -> None:
        """List a rewrite among the edits."""
        if self.on_rewrite is not None:
            self.on_rewrite(self.owner)
        if self.calibrating:
            layer = is_torchs(self.module)
            if layer and (isinstance(self.module, nn.MultiheadAttention) or not any(self.module.children())):
                before = type(self.module).__name__
            self.edits[before, after, "" if layer else _user_line()] = None

    def rho(self, name: str, after: str, rms: Tensor, *, follows: bool = False) -> Tensor:
        """RMS/r, r calibrated to the mean over samples."""
        return rms / self.constant(name, after, rms.mean, follows=follows)

    def constant(self, name: str, after: str, fit: Callable[[], Tensor], *, follows: bool = False) -> Tensor:
        """The constant of this call, the n-th of its kind in this forward.

        It is fitted in calibration, and later, if it follows the data, moved in train mode.
        """
        site = f"homogeneous_{name}_{_state.ordinals[name]}"
        _state.ordinals[name] += 1
        self.note(name, after)
        buffers = self.module._buffers  # noqa: SLF001  # get_buffer would split a dotted name
        if self.calibrating:
            with torch.no_grad():
                value = fit().detach()
                if value.dim() == 0:  # all-zero inputs carry no scale
                    value = torch.where(value > 0, value, torch.ones_like(value))
                if buffers.get(site) is None or self.calls[site] == 0:
                    self.module.register_buffer(site, value.clone())
                else:  # a module that is called several times is calibrated to the mean of all calls
                    buffers[site].lerp_(value, 1.0 / (self.calls[site] + 1))  # type: ignore[union-attr]  # it is there
            self.calls[site] += 1
        held = buffers.get(site)
        if held is None:
            raise ConversionError(
                f"{type(self.module).__name__}.forward reached {name!r} at {_user_line()} on a path that it "
                "did not take when it was converted: convert with example inputs that take this path."
            )
        if self.calibrating or not self.module.training:
            return held
        current = held.clone()  # the backward pass needs it after train mode, or DDP's broadcast, moved the buffer
        if follows:
            with torch.no_grad():
                held.lerp_(fit().to(held), _MOMENTUM)
        return current


class ScaleKeepingForward(RewrittenForward):
    """Stands in the place of a hand-written norm's forward: ρ·N(x/ρ), ρ = RMS(x)/r."""

    def __call__(self, x: Tensor) -> Any:
        degree = degree_of(x, default=1.0)
        with without_rewrites():
            name = type(self.module).__name__
            rho = self.rho(name, "ρ·N(x/ρ), ρ = RMS(x)/r", sample_rms(x), follows=True).to(x.dtype)
            y = rho * type(self.module).forward(self.module, safe_divide(x, rho))
        track(y, degree)
        return y


def is_torchs(module: nn.Module) -> bool:
    """Whether this is a layer of PyTorch, such as nn.GELU."""
    return type(module).__module__.startswith("torch.nn.")


#: Files that a call passes through on its way from the line that makes it.
_MACHINERY = ("/axiograd/homogeneity/", "/torch/overrides", "/torch/_", "/torch/utils/", "/torch/nn/functional")


def _user_line() -> str:
    for frame, line in traceback.walk_stack(None):
        if not any(part in frame.f_code.co_filename for part in _MACHINERY):
            return f"{frame.f_code.co_filename}:{line}"
    return "torch"
