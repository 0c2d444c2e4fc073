"""The held step: a prior for a third of a plain training step, without second derivatives.

The gates of a piecewise-linear network are its choices: which unit is on, which entry is the largest, what is dropped.
While they are held as they are at x, F is affine with slope J. Let r = ∂L/∂F be the task's gradient by the outputs,
g = Jᵀr, and v = λ·∂Ω/∂g what the prior wants of it. Then

    ∇θ [L + λ·Ω] = ∇θ r·F(x) + ∇θ r·J·v = ∇θ r·F(x + v),

with r, v and the gates held fixed. So a step is: forward; back to the input, keeping the gradient δ of each layer's
output; forward of x + v with the same gates; and one product ⟨δ, layer(·)⟩ for each layer with weights.

Etmann (arXiv 1906.06637) saves a third of double backpropagation in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, disable_saved_tensors_hooks, get_gradient_edge
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from axiograd._state import preserved_buffers, running_eagerly, with_buffers
from axiograd.attribution.passes import Pass
from axiograd.errors import DisconnectedError
from axiograd.homogeneity.conversion.scale import per_sample

if TYPE_CHECKING:
    from axiograd._calls import Call, Model

#: By how much ⟨r, J·v⟩ and ⟨Jᵀr, v⟩ may differ, in parts of the terms that they are sums of, and in roundings of F.
_TOLERANCE, _ROUNDINGS = 1e-3, 64


class NotHeldError(Exception):
    """The step cannot be taken with held gates; the message says why."""


# The table of gates


def _relu(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    y = function(*args, **kwargs)
    return y, y.detach() > 0


def _dropout(
    function: Callable[..., Any], x: Tensor, p: float = 0.5, train: bool = True, inplace: bool = False, **named: bool
) -> tuple[Tensor, Tensor]:
    """A dropout multiplies, so that ones become its mask."""
    name = function.__name__
    mask = getattr(F, name.rstrip("_"))(torch.ones_like(x), p, training=named.get("training", train))
    return (x.mul_(mask) if inplace or name.endswith("_") else x * mask), mask


def _max_pool(function: Callable[..., Any], x: Tensor, *args: Any, **kwargs: Any) -> tuple[Any, Tensor]:
    name = function.__name__
    settings = args[: 1 if name.startswith("adaptive") else 5]
    y, winners = getattr(F, name)(x, *settings, **{**kwargs, "return_indices": True})
    wanted = kwargs.get("return_indices", len(args) > len(settings) and args[-1])
    return (y, winners) if wanted else y, winners


def _winners(x: Tensor, winners: Tensor) -> Tensor:
    dims = winners.dim() - 2
    return x.flatten(-dims).gather(-1, winners.flatten(-dims)).view(winners.shape)


#: Function → how to call it and see what it chose, and the linear function that it is from then on.
GATES: dict[str, tuple[Callable[..., Any], Callable[[Tensor, Tensor], Tensor]]] = {
    "relu": (_relu, torch.mul),
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d"), (_dropout, torch.mul)),
    **{f"{kind}max_pool{d}d": (_max_pool, _winners) for kind in ("", "adaptive_") for d in (1, 2, 3)},
}
#: Other piecewise-linear functions, held as f(x) + J·(x′ − x) with the slope J that they have at x.
SLOPES = frozenset(
    (
        *("leaky_relu", "prelu", "relu6", "hardtanh", "threshold", "_threshold", "hardshrink", "clamp", "clip"),
        *("clamp_min", "clamp_max", "abs", "absolute", "__abs__", "maximum", "minimum", "fmax", "fmin"),
        *("max", "min", "amax", "amin", "sort", "topk", "kthvalue"),
    )
)


def _along_slopes(function: Callable[..., Any], places: list[int], here: list[Tensor], args: Any, kwargs: Any) -> Any:
    """f(x) + J·(x′ − x), for x at these places among the arguments, which now have x′ there."""
    given, spec = tree_flatten((args, kwargs))

    def at(*values: Tensor) -> Any:
        leaves = list(given)
        for place, value in zip(places, values, strict=True):
            leaves[place] = value.clone()  # the function may work in place
        positional, named = tree_unflatten(leaves, spec)
        return function(*positional, **named)

    # J·d is the derivative of ⟨Jᵀc, d⟩ by c. (Forward differentiation warns as it starts, and is no faster.)
    here = [x.requires_grad_() for x in here]
    results, shape = tree_flatten(at(*here))
    values = [y for y in results if y.is_floating_point()]
    c = [torch.zeros_like(y, requires_grad=True) for y in values]
    back = torch.autograd.grad(values, here, c, create_graph=True)
    steps = [given[place] - x.detach() for place, x in zip(places, here, strict=True)]
    slopes = torch.autograd.grad(back, c, steps, create_graph=True)
    moved = iter(y + dy for y, dy in zip(values, slopes, strict=True))
    return tree_unflatten([next(moved) if y.is_floating_point() else y for y in results], shape)


class HeldGates(TorchFunctionMode):
    """Follows what depends on the input through a pass, keeps its choices, and repeats them in a second pass.

    What it does not know it runs as it is: whether that was right is seen by comparing the two passes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._calls = count()
        #: What is a function of the input wears it; it refers to nothing, so that no tensor keeps the others alive.
        self._mark = object()
        #: Call → the linear function of its arguments that it is with its choices held.
        self._held: dict[int, Callable[[Any, Any], Any]] = {}
        #: Call with weights → where the gradient of its result arrives.
        self.edges: dict[int, GradientEdge] = {}
        #: In the second pass: the gradients that have arrived, and ⟨δ, layer(·)⟩.
        self._deltas: dict[int, Tensor | None] | None = None
        self.products: list[Tensor] = []
        #: Multiplications with weights.
        self.work = 0.0

    def follow(self, tensor: Tensor) -> Tensor:
        """Take what is made of this tensor for a function of the input."""
        tensor._held = self._mark  # type: ignore[attr-defined]  # noqa: SLF001 (a mark of our own)
        return tensor

    def follows(self, value: Any) -> bool:
        """Whether a value is a tensor that is a function of the input."""
        return isinstance(value, Tensor) and getattr(value, "_held", None) is self._mark

    def again(self, deltas: Sequence[Tensor | None]) -> None:
        """What is entered next is a second pass."""
        self._calls, self.products = count(), []
        self._deltas = dict(zip(self.edges, deltas, strict=True))

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        if not any(map(self.follows, leaves)):
            return function(*args, **kwargs)
        if not args and "input" in kwargs:
            args, kwargs = (kwargs["input"],), {name: v for name, v in kwargs.items() if name != "input"}
        weights = [t for t in leaves if isinstance(t, Tensor) and t.requires_grad and not self.follows(t)]
        step = self._first if self._deltas is None else self._second
        return tree_map_only(Tensor, self.follow, step(next(self._calls), function, args, kwargs, weights))

    def _first(self, index: int, function: Any, args: Any, kwargs: Any, weights: list[Tensor]) -> Any:
        """Call with weights that take no part in autograd, and keep what was chosen."""
        if weights:
            own = {id(w): w.detach() for w in weights}
            args, kwargs = tree_map_only(Tensor, lambda t: own.get(id(t), t), (args, kwargs))
        name = function.__name__
        name = name if name.startswith("__") else name.rstrip("_")
        held: Callable[[Any, Any], Any] | None = None
        if name in GATES:
            call, linear = GATES[name]
            result, choice = call(function, *args, **kwargs)
            held = lambda args, _: linear(args[0], choice)  # noqa: E731
        elif name in SLOPES:
            leaves = tree_leaves((args, kwargs))
            places = [i for i, value in enumerate(leaves) if self.follows(value)]
            held = partial(_along_slopes, function, places, [leaves[i].detach().clone() for i in places])
            result = function(*args, **kwargs)
        else:
            result = function(*args, **kwargs)
            if not any(isinstance(t, Tensor) and t.is_floating_point() for t in tree_leaves(result)):
                held = lambda *_: result  # noqa: E731  # a comparison, an order, a size
        if held is not None:
            # What worked in place does so again.
            in_place = isinstance(result, Tensor) and result is args[0]
            self._held[index] = (lambda args, kwargs: args[0].copy_(held(args, kwargs))) if in_place else held
        if weights:
            if not isinstance(result, Tensor) or not result.requires_grad:
                raise NotHeldError(f"{function.__name__} has weights, and no one gradient by the input.")
            self.edges[index] = get_gradient_edge(result)
            self.work += result.numel() * max(w.numel() / len(w) if w.dim() else 1 for w in weights)
        return result

    def _second(self, index: int, function: Any, args: Any, kwargs: Any, weights: list[Tensor]) -> Any:
        """Repeat what was chosen; a result with weights is multiplied by its gradient of the first pass."""
        result = self._held[index](args, kwargs) if index in self._held else function(*args, **kwargs)
        if not weights:
            return result
        delta = (self._deltas or {}).get(index)
        if delta is not None:
            self.products.append((result * delta).sum())
        return result.detach()


class HeldStep:
    """One training step with a prior on the residual, from the first pass to a total that can be differentiated.

    `differentiate` stands in for the ordinary pass of a method of attribution, which makes its attributions of what
    comes back; `connect` makes the second pass, and gives the total its gradient by the weights.
    """

    def __init__(self, task: Callable[[Any], Tensor], *, first: bool) -> None:
        self._task = task
        #: Whether to compare the passes along a direction as long as x, too: a short one may cross no gate.
        self._first = first
        self._gates = HeldGates()

    @property
    def work(self) -> float:
        """Multiplications with weights in a forward pass."""
        return self._gates.work

    def differentiate(
        self, model: Model, arguments: Call, score: Callable[[Any], Tensor], *, create_graph: bool
    ) -> Pass:
        """Outputs, scores and Jᵀu, where u = s·r is what is attributed, s a number for each sample."""
        del create_graph  # `connect` does without
        self._model, self._arguments = model, arguments
        self._buffers = [buffer.clone() for buffer in _buffers_of(model)]
        x = [feature.detach().requires_grad_() for feature in arguments.features]
        with _without_checkpoints(), self._gates:
            outputs = arguments.call(model, [self._gates.follow(leaf.clone()) for leaf in x])
        made = self._output(outputs)
        if made.dtype == torch.float16:
            raise NotHeldError("in float16 the task's gradient, that of a mean over samples, may vanish.")
        self._outputs = made.detach().requires_grad_()
        outputs = tree_map_only(Tensor, lambda t: self._outputs if t is made else t, outputs)
        scores = score(outputs)
        (u,) = torch.autograd.grad(scores.sum(), self._outputs, retain_graph=True)
        (self._r,) = torch.autograd.grad(self._task(outputs), self._outputs, retain_graph=True)
        places: list[Any] = [*x, *self._gates.edges.values()]
        found: tuple[Tensor | None, ...] = torch.autograd.grad(made, places, self._r, allow_unused=True)
        self._deltas = found[len(x) :]
        self._gradients = [
            (torch.zeros_like(leaf) if g is None else g).requires_grad_() for leaf, g in zip(x, found, strict=False)
        ]
        size = _norms(self._r)
        s = torch.where(size > 0, _norms(u) / size, size)
        return Pass(outputs, scores, tuple(per_sample(s, g) * g for g in self._gradients))

    def connect(self, total: Tensor) -> Tensor:
        """The same number, with the gradient of r·F(x + v) by the weights."""
        found: tuple[Tensor | None, ...] = torch.autograd.grad(
            total, self._gradients, retain_graph=True, allow_unused=True
        )
        directions = [torch.zeros_like(g) if v is None else v for g, v in zip(self._gradients, found, strict=True)]
        if self._first:
            draw = torch.Generator().manual_seed(0)
            signs = [2 * torch.randint(2, x.shape, generator=draw) - 1 for x in self._arguments.features]
            self._second_pass([x * sign.to(x) for x, sign in zip(self._arguments.features, signs, strict=True)])
        products = self._second_pass(directions)
        if not products:
            raise DisconnectedError(
                "the model has no parameter that requires a gradient; unfreeze what should be trained."
            )
        product = torch.stack([p.double() for p in products]).sum()
        # The total keeps its own graph, for what the task and the prior may train of their own.
        return total + (product - product.detach()).to(total.dtype)

    def _second_pass(self, directions: list[Tensor]) -> list[Tensor]:
        """The products at x + v; raises unless ⟨r, J·v⟩ = ⟨Jᵀr, v⟩ for every sample."""
        pairs = zip(self._arguments.features, directions, strict=True)
        moved = [self._gates.follow((x + v).detach()) for x, v in pairs]
        self._gates.again(self._deltas)
        with preserved_buffers(with_buffers(self._model)), torch.random.fork_rng(), running_eagerly():
            for buffer, before in zip(_buffers_of(self._model), self._buffers, strict=True):
                buffer.copy_(before)
            with self._gates:
                outputs = self._arguments.call(self._model, moved)
        here, there = self._outputs.detach().double(), self._output(outputs).detach().double()
        r, change = self._r.double(), there - here
        terms = [v.double() * g.detach().double() for v, g in zip(directions, self._gradients, strict=True)]
        gap = _rows(r * change).sum(1) - sum(_rows(term).sum(1) for term in terms)
        rounding = torch.finfo(self._outputs.dtype).eps * sum(_rows(t.abs()).sum(1) for t in (r * here, *terms))
        if bool((gap.abs() > _TOLERANCE * _rows((r * change).abs()).sum(1) + _ROUNDINGS * rounding).any()):
            raise NotHeldError("a choice of the network is not held, or the samples of a batch depend on each other.")
        return self._gates.products

    def _output(self, outputs: Any) -> Tensor:
        moving: list[Tensor] = [t for t in tree_leaves(outputs) if self._gates.follows(t)]
        if len({id(t) for t in moving}) != 1 or not moving[0].is_floating_point():
            raise NotHeldError(f"{len(moving)} outputs depend on the input, and the task may use all of them.")
        return moving[0]


def _rows(values: Tensor) -> Tensor:
    return values.reshape(len(values), -1)


def _norms(values: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(_rows(values), dim=1)
    return norms


def _buffers_of(model: Model) -> list[Tensor]:
    return [buffer for owner in with_buffers(model) for buffer in owner.buffers(recurse=False)]


@contextmanager
def _without_checkpoints() -> Iterator[None]:
    """A checkpoint would compute a part of the pass again, without its gates."""
    reason = "the model keeps activations elsewhere (checkpoints, save_on_cpu)"
    try:
        with disable_saved_tensors_hooks(reason):
            yield
    except RuntimeError as error:
        if reason not in str(error):
            raise
        raise NotHeldError(reason) from error
