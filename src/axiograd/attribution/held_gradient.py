"""Held gradient: Input×Gradient of the network whose deciding factors are held, one pass for any transformer.

A network is made of what flows and of what decides about it. The scale of a norm, the slope of an activation and the
choice of a pooling have degree 0: they decide. Held constant, what is left is linear in what flows, features and
constants (biases, positions, class tokens), so that both add up to the score:

    F(x) = Σᵢ xᵢ · ∂F_held/∂xᵢ + Σ_c c · ∂F_held/∂c

Attention weights have degree 0, too, but which tokens they choose is most of what a class token knows. A product's
shares are the degrees of its factors: values get all of A·V, and the weights' own gradient only moves score between
features. It would add up to zero if scales were not held; what it does add up to is subtracted from the constants.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary

from axiograd._calls import is_floating
from axiograd._state import running_eagerly
from axiograd._typing import Inputs, Target
from axiograd.attribution.base import AttributionCall, Computed, SinglePass
from axiograd.attribution.passes import Pass, gradient, leaves, run
from axiograd.attribution.results import Completeness
from axiograd.attribution.sums import summed
from axiograd.errors import NotHomogeneousError


class HeldGradient(SinglePass):
    """xᵢ · ∂F_held/∂xᵢ, where F_held is F with scales of norms, gates and slopes of activations held.

    One pass for any differentiable model, made for transformers. It is not Integrated Gradients: it says how a score
    is put together from features and constants (`completeness`) by the scales and slopes that the network chose, and
    nothing about how the features chose these. The rules are those of the detach trick (Ali et al., 2022) and of
    AttnLRP (Achtibat et al., 2024), for operators in place of modules; attention weights pass their own gradient.

    >>> from torch.nn import GELU, LayerNorm, Linear, Sequential
    >>> model = Sequential(Linear(2, 4), GELU(), LayerNorm(4), Linear(4, 1))
    >>> x = torch.tensor([[1.0, -3.0]])
    >>> parts = HeldGradient(model).completeness(x)
    >>> torch.allclose(parts.features + parts.constants, model(x)[:, 0], atol=1e-5)
    True
    """

    multiplies_by_inputs = True

    def _combine(self, x: Tensor, gradient: Tensor) -> Tensor:
        return x * gradient

    def attends(self, inputs: Inputs, *, additional_forward_args: Any = None) -> bool:
        """Whether the model mixes tokens by weights that it makes from them, as attention does; one forward pass."""
        call = self._call(inputs, None, None, additional_forward_args, create_graph=False)
        with self._guarded(call, preserve=True):
            return self._run(call)[0].attends

    def _differentiate(self, call: AttributionCall) -> Pass:
        held, x, outputs = self._run(call)
        scores = self._scores(held, outputs, call)
        with held.holding():
            return Pass(outputs, scores, gradient(scores, x, create_graph=call.create_graph))

    def _run(self, call: AttributionCall, unit: Tensor | None = None) -> tuple[HeldNetwork, tuple[Tensor, ...], Any]:
        x = leaves(call.arguments.features, create_graph=call.create_graph)
        held = HeldNetwork(x, create_graph=call.create_graph, unit=unit)
        with running_eagerly(), held:
            return held, x, run(call.model, call.arguments, x)

    def _scores(self, held: HeldNetwork, outputs: Any, call: AttributionCall) -> Tensor:
        with held:
            scores = self._score(outputs, call.target, call.arguments.batch)
        if held.roles.get(scores) == Role.WEIGHT:
            raise NotHomogeneousError("a softmax is the last operator of what is attributed: attribute the logits.")
        return scores

    def _parts(self, call: AttributionCall) -> tuple[Tensor, Tensor, Tensor]:
        """Σ features, Σ constants and score of every sample; for the target "all", outputs come first."""
        with self._guarded(call, preserve=True):
            unit = torch.ones((), dtype=torch.float64, device=call.arguments.features[0].device, requires_grad=True)
            held, x, outputs = self._run(call, unit)
            scores = self._scores(held, outputs, call)
            with held.holding():
                # The derivative by `weights` takes the sum over samples apart again.
                weights = torch.ones_like(scores, requires_grad=True)
                total: Tensor | None
                (total,) = torch.autograd.grad(scores, unit, weights, create_graph=True, allow_unused=True)
                constants = torch.zeros_like(scores)
                if total is not None:
                    (constants,) = torch.autograd.grad(total, weights, retain_graph=True)
                products = [xi * g for xi, g in zip(x, gradient(scores, x, create_graph=False), strict=True)]
        scores, constants = scores.detach().movedim(0, -1), constants.movedim(0, -1)
        return summed(products, scores.dim(), scores.dtype).detach(), constants, scores

    def _delta(self, call: AttributionCall, computed: Computed) -> tuple[Tensor, Tensor]:  # noqa: ARG002 - in parts
        """Σ features + Σ constants − F(x), which is rounding, and F(x)."""
        features, constants, scores = self._parts(call)
        return features + constants - scores, scores

    def completeness(
        self, inputs: Inputs, target: Target = None, *, baselines: Any = None, additional_forward_args: Any = None
    ) -> HeldCompleteness:
        """What features and constants add up to, found apart from each other, and the rest, which is rounding."""
        features, constants, scores = self._parts(
            self._call(inputs, target, baselines, additional_forward_args, create_graph=False)
        )
        whole = Completeness.of(features + constants - scores, scores, "none")
        return HeldCompleteness(**vars(whole), features=features, constants=constants)


@dataclass(frozen=True, eq=False)
class HeldCompleteness(Completeness):
    """Of each score, what features and constants contribute; `delta` is how far both are from adding up to it."""

    features: Tensor
    constants: Tensor

    def __str__(self) -> str:
        share = self.constants.abs().sum() / (self.constants.abs().sum() + self.features.abs().sum())
        return (
            f"features and constants add up to the score: relative error {float(self.relative.max()):.1e} at most "
            f"(scale: root mean square of F(x) = {self.scale:.4g}); constants are {float(share):.0%} of both"
        )


# ---------------------------------------------------------------------------------------------------- the held network


class Role(IntEnum):
    """What a value does in a product: the factors of the highest role flow, the others are held, but for weights."""

    #: Scales: sigmoid, 1/√variance.
    GATE = 0
    #: Weights of a mean, a softmax: they pass their own gradient.
    WEIGHT = 1
    #: A bounded function, tanh: beside an unbounded factor it is a gate, as in GELU, x · ½(1 + tanh(…)).
    BOUNDED = 2
    SIGNAL = 3


#: Scales; they have their own gradient where nothing is multiplied by them.
_GATES = {"exp", "sqrt", "rsqrt", "reciprocal", "norm", "linalg_vector_norm", "var", "std"}
#: Functions of one number, f(x) = f(0) + x · slope(x), and the role of what they return; None: that of x.
_SLOPES: Mapping[str, Role | None] = {
    **dict.fromkeys(("sigmoid", "hardsigmoid"), Role.GATE),
    **dict.fromkeys(("tanh", "erf", "softsign", "hardtanh", "relu6"), Role.BOUNDED),
    **dict.fromkeys(("gelu", "silu", "mish", "elu", "selu", "celu", "softplus", "logsigmoid", "hardswish")),
    **dict.fromkeys(("pow", "square", "clamp", "clamp_min", "clamp_max")),
}
#: Sums of products, which make a signal of what is bounded.
_CONTRACTIONS = {"linear", "matmul", "mm", "bmm", "mv", "dot", "inner", "einsum", "tensordot", "bilinear"}
_CONTRACTIONS |= {f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3)}
_PRODUCTS = _CONTRACTIONS | {"mul", "multiply", "outer"}
_DIVISIONS = {"div", "divide", "true_divide", "truediv"}
#: Operators that Python spells otherwise.
_SPELLINGS = {"rmul": "mul", "imul": "mul", "rmatmul": "matmul", "itruediv": "div", "rdiv": "reciprocal", "ipow": "pow"}
#: Neither linear, nor of degree 0, nor a slope: nothing can be held for features and constants to add up.
_CURVED = {"lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"}
_CURVED |= {"log_softmax", "logsumexp", "softmin", "log", "log1p", "log2", "log10", "expm1", "exp2", "erfc"}
_CURVED |= {"sin", "cos", "tan", "sinh", "cosh", "atan", "prod", "cumprod", "cosine_similarity"}
_IN_PLACE = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__"}


class HeldNetwork(TorchFunctionMode):
    """Inside it, a model computes what it always does, and its gradient is that of the network whose gates are held.

    It sees operators, not modules: no model is patched. `unit` is the number 1, a factor of every constant that enters
    a sum, so that the derivative by it is what the constants contribute.
    """

    def __init__(self, flowing: Sequence[Tensor], *, create_graph: bool = False, unit: Tensor | None = None) -> None:
        super().__init__()
        self.create_graph, self.unit = create_graph, unit
        #: Whether weights were multiplied with tokens.
        self.attends = False
        #: What flows; every other tensor is a constant.
        self.roles: Any = WeakTensorKeyDictionary()
        for x in flowing:
            self.roles[x] = Role.SIGNAL
        self._holding = False

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Inside, gates pass no gradient; outside, in the backward pass of a training step, they do."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False

    def __torch_function__(
        self, func: Callable[..., Any], _types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if not self._flowing(args, kwargs):
            return func(*args, **kwargs)
        if "input" in kwargs:
            args = (kwargs.pop("input"), *args)
        spelled = getattr(func, "__name__", "")
        name = spelled.strip("_")
        name = _SPELLINGS.get(name, name)
        if not (spelled in _IN_PLACE or (spelled.endswith("_") and not spelled.endswith("__"))):
            return self._apply(name, func, args, kwargs)

        def out_of_place(first: Tensor, *others: Any, **named: Any) -> Tensor:
            first = first.clone()
            func(first, *others, **named)
            return first

        old = self._with_role(args[0].clone(), self.roles.get(args[0]))
        new = self._apply(name, out_of_place, (old, *args[1:]), kwargs)
        return self._with_role(args[0].copy_(new), self.roles.get(new))

    def _apply(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The rule of an operator."""
        if name in _CURVED:
            remedy = "attribute the logits" if name == "log_softmax" else "use IntegratedGradients"
            raise NotHomogeneousError(
                f"HeldGradient has no rule for {name}, with which features and constants would not add up: {remedy}."
            )
        if name in _DECOMPOSED or name in _UNFOLDED:
            with self:
                return (_DECOMPOSED[name] if name in _DECOMPOSED else _unfolded(func))(*args, **kwargs)
        if name in {"softmax", "safe_softmax"}:
            return self._softmax(func, *args, **kwargs)
        if name in _GATES or (name == "pow" and not _is_number(args[1], at_least=1)):
            return self._with_role(func(*args, **kwargs), Role.GATE)
        if name in _SLOPES:
            return self._slope(func, args, kwargs, _SLOPES[name])
        if name in _DIVISIONS:
            if args[0] not in self.roles:
                return self._with_role(func(*args, **kwargs), Role.GATE)
            return self._sum(func, (args[0], self.held(args[1])), kwargs)
        if name in _PRODUCTS:
            return self._product(name, func, args, kwargs)
        return self._sum(func, args, kwargs)

    def held(self, value: Any) -> Any:
        """The same number, through which no gradient flows while gates are held."""
        if not isinstance(value, Tensor) or value not in self.roles:
            return value
        if not self.create_graph:
            return value.detach()
        return _Held.apply(value, self)  # type: ignore[no-untyped-call]  # torch's

    # The rules.

    def _sum(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What is linear in what flows, but for constants: y = f(x) − f(0) + unit · f(0)."""
        role = max(self.roles[t] for t in self._flowing(args, kwargs))
        found = func(*args, **kwargs)
        if self.unit is not None:
            with torch.no_grad():
                constants = func(*self._zeros(args), **self._zeros(kwargs))
            found = pytree.tree_map(self._counted, found, constants)
        return self._with_role(found, role)

    def _slope(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], role: Role | None) -> Any:
        x, others = args[0], args[1:]
        in_place = any(value is True for value in (*others, kwargs.get("inplace")))
        signal = self._with_role(x.clone(), self.roles[x]) if in_place else x
        with torch.set_grad_enabled(self.create_graph):
            # The slope at zero is that beside it.
            safe = torch.where(signal == 0, torch.finfo(x.dtype).tiny ** 0.5, signal)
            at_zero = func(torch.zeros((), dtype=x.dtype, device=x.device), *others, **kwargs)
            slope = (func(safe.clone() if in_place else safe, *others, **kwargs) - at_zero) / safe
            slope = self.held(self._with_role(slope, Role.GATE))
        found = self._counted(signal * slope + at_zero, at_zero)
        return self._with_role(
            x.copy_(found) if in_place else found, self.roles[x] if role is None else min(role, self.roles[x])
        )

    def _product(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Of several factors that flow, those of the highest role do, in equal shares, and weights beside them."""
        roles = [self.roles[t] for t in self._flowing(args, kwargs)]
        highest = max(roles)
        self.attends |= name in _CONTRACTIONS and Role.WEIGHT in roles and highest > Role.WEIGHT

        def below(value: Any) -> Any:
            return value if self._role(value) in {highest, Role.WEIGHT, None} else self.held(value)

        found = self._sum(func, *pytree.tree_map(below, (args, kwargs)))
        n = roles.count(highest)
        if n > 1:
            found = found / n + (1 - 1 / n) * self.held(found)
        return self._with_role(found, Role.SIGNAL if highest and name in _CONTRACTIONS else highest)

    def _softmax(self, func: Callable[..., Any], logits: Tensor, dim: int, *args: Any, **kwargs: Any) -> Tensor:
        weights: Tensor = func(logits, dim, *args, **kwargs)
        if self.unit is not None:
            # What is masked contributes nothing, and a mask is too large a number to be multiplied by zero.
            logits = logits.masked_fill(weights == 0, -torch.inf)
            weights = func(logits, dim, *args, **kwargs)
            with torch.no_grad():
                # What the gradient by logits adds up to, Σ logit · ∂weights/∂logit.
                terms = logits.masked_fill(weights == 0, 0.0)
                moved = weights * (terms - (weights * terms).sum(dim, keepdim=True))
            weights = self._counted(weights, -moved)
        return self._with_role(weights, Role.WEIGHT)  # type: ignore[no-any-return]  # what it is given

    # What rules need.

    def _flowing(self, *trees: Any) -> list[Tensor]:
        return [t for t in pytree.tree_leaves(trees) if isinstance(t, Tensor) and t in self.roles]

    def _role(self, value: Any) -> Role | None:
        return self.roles.get(value) if isinstance(value, Tensor) else None

    def _zeros(self, tree: Any) -> Any:
        """The arguments with nothing flowing."""
        return pytree.tree_map(lambda t: torch.zeros_like(t) if isinstance(t, Tensor) and t in self.roles else t, tree)

    def _counted(self, value: Any, constants: Any) -> Any:
        """The same number, of which the constants are a multiple of the unit."""
        if self.unit is None or not is_floating(value):
            return value
        # A mask's −∞ contributes nothing.
        return value + ((self.unit - 1) * constants.nan_to_num(0.0, 0.0, 0.0)).to(value.dtype)

    def _with_role(self, tree: Any, role: Role | None) -> Any:
        """Note what flows; what has no gradient (detached, compared, made anew) is a constant."""
        for t in pytree.tree_leaves(tree) if role is not None else ():
            if isinstance(t, Tensor) and (t.requires_grad or role == Role.GATE):
                self.roles[t] = role
        return tree


class _Held(torch.autograd.Function):
    """The identity, without a gradient while gates are held, so that training still reaches what made the gate."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, network: HeldNetwork) -> Tensor:
        ctx.network = network
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None if ctx.network._holding else gradients[0], None  # noqa: SLF001


def _is_number(value: Any, *, at_least: float) -> bool:
    return isinstance(value, int | float) and value >= at_least


# ------------------------------------------------------------------------------------ operators made of other operators


def _standardised(x: Tensor, dims: Sequence[int], eps: float) -> Tensor:
    dims = tuple(dims)
    centred = x - x.mean(dims, keepdim=True)
    return centred * (centred.square().mean(dims, keepdim=True) + eps).rsqrt()


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _layer_norm(
    x: Tensor, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Tensor:
    return _scaled(_standardised(x, range(-len(shape), 0), eps), weight, bias)


def _rms_norm(x: Tensor, shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Tensor:
    dims, floor = tuple(range(-len(shape), 0)), torch.finfo(x.dtype).eps if eps is None else eps
    return _scaled(x * (x.square().mean(dims, keepdim=True) + floor).rsqrt(), weight, None)


def _group_norm(x: Tensor, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Tensor:
    grouped = x.reshape(len(x), groups, -1)
    return _scaled(_standardised(grouped, [2], eps).reshape(x.shape), *_per_channel(x, weight, bias))


def _batch_norm(
    x: Tensor, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    dims = [0, *range(2, x.dim())]
    weight, bias = _per_channel(x, weight, bias)
    if not training:
        mean, var = _per_channel(x, running_mean, running_var)
        return _scaled((x - mean) * (var + eps).rsqrt(), weight, bias)
    if running_mean is not None:
        running_mean.lerp_(x.detach().mean(dims), momentum)
        running_var.lerp_(x.detach().var(dims), momentum)
    return _scaled(_standardised(x, dims, eps), weight, bias)


def _instance_norm(
    x: Tensor, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    if not use_input_stats:
        return _batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    return _scaled(_standardised(x, range(2, x.dim()), eps), *_per_channel(x, weight, bias))


def _per_channel(x: Tensor, *constants: Any) -> list[Any]:
    return [None if c is None else c.reshape(-1, *[1] * (x.dim() - 2)) for c in constants]


def _add_product(added: Tensor, *factors: Tensor, beta: float = 1, alpha: float = 1, **named: Tensor) -> Tensor:
    a, b = (*factors, *named.values())
    return beta * added + alpha * (a @ b)


def _glu(x: Tensor, dim: int = -1) -> Tensor:
    signal, gate = x.chunk(2, dim)
    return signal * gate.sigmoid()


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if enable_gqa:
        key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    logits = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
    if attn_mask is not None:
        logits = logits.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else logits + attn_mask
    # A token that may look nowhere gets zeros.
    blind = logits.isneginf().all(-1, keepdim=True)
    weights = logits.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)
    return F.dropout(weights, dropout_p) @ value


_DECOMPOSED: Mapping[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": _attention,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "addmm": _add_product,
    "baddbmm": _add_product,
    "addcmul": lambda added, a, b, *, value=1: added + value * (a * b),
    "glu": _glu,
}
#: Functions whose own Python code is followed instead.
_UNFOLDED = frozenset({"multi_head_attention_forward", "normalize", "local_response_norm"})


def _unfolded(func: Any) -> Any:
    """The function without its first lines, which hand it on to the mode as a whole."""
    seen = dict.fromkeys(
        ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"), lambda *_: False
    )
    copy = types.FunctionType(func.__code__, {**func.__globals__, **seen}, func.__name__, func.__defaults__)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy
