"""A gradient with respect to the input that can be trained through without second derivatives.

While its gates are held, F is affine in x. With u the weights of the outputs, g = Jᵀu and v = ∂Ω/∂g,

    ∇θ v·g = ∇θ u·F_gates(v) without what is added (biases),

one forward pass of v and, per layer, one product with the output gradients that made g. Where u = s·r is a multiple of
the task's own output gradient r, sample by sample, even those products are shared with the task:

    ∇θ [L + Ω(g)] = ∇θ r·F_gates(x + s·v),

a plain training step at a shifted input (Etmann: A closer look at double backpropagation, 2019).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from axiograd._calls import Call, Model, zeros_like
from axiograd.attribution.passes import Pass, Score, leaves
from axiograd.homogeneity.conversion.scale import per_sample
from axiograd.training.held_gates.checkpointing import without_checkpoints
from axiograd.training.held_gates.multiples import ROUNDING, common, multiples
from axiograd.training.held_gates.once import once
from axiograd.training.held_gates.operators import NotHeldError, NotSharedError
from axiograd.training.held_gates.recorder import Recorder
from axiograd.training.held_gates.tape import Logged, Tape, TapeEntry, Tensors


class HeldPass(ABC):
    """A forward pass that can be made again with its gates held, whose gradient belongs to ρ, and u = s·ρ."""

    cotangent: Tensor | None = None
    scale: Tensor | None = None
    #: Whether ρ = r for every sample.
    shared: bool = False
    gradients: tuple[Tensor, ...] = ()

    @property
    @abstractmethod
    def kept(self) -> Tensors:
        """What it needs until it is differentiated, unchanged."""

    @abstractmethod
    def weight_gradients(
        self, inputs: Sequence[Tensor], tensors: Tensors, *, linear: bool, times: Tensor | None = None
    ) -> tuple[list[Tensor | None], dict[int, Tensor]]:
        """∇θ of ρ·F_gates(inputs), layer by layer, each sample so many times, and the outputs."""

    @abstractmethod
    def plain_gradients(
        self, inputs: Sequence[Tensor], tensors: Tensors, r: Tensor
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """∇θ and ∇x of r·F(x)."""

    def multiple(self, r: Tensor | None) -> float | Tensor | None:
        """What r is times ρ: a number, or one for each sample; None if there is none."""
        rho = self.cotangent
        if self.shared and r is not None and rho is not None and torch.equal(r, rho):
            return 1.0
        if r is None or rho is None or not bool(r.any()):
            return 0.0
        square = float(rho.double().square().sum())
        if not self.shared or square == 0:
            return None
        times = float((r.double() * rho.double()).sum()) / square
        rest = float((r.double() - times * rho.double()).norm() / r.double().norm())
        return times if rest <= ROUNDING * torch.finfo(r.dtype).eps else multiples(r, rho)


@dataclass(eq=False)
class Held(HeldPass):
    """Such a pass of any model, by the tape that was written of it."""

    tape: Tape
    roots: tuple[Tensor, ...]
    device: str
    autocast: torch.dtype | None
    #: Whether the model has checkpoints through which autograd takes no gradient by inputs.
    reentrant: bool = False
    #: Of each entry that has weights, the gradients of its results.
    output_gradients: dict[TapeEntry, tuple[Tensor | None, ...]] = field(default_factory=dict)
    outputs: tuple[int, ...] = ()

    @property
    def kept(self) -> Tensors:
        return Tensors(self.tape.weights, self.tape.fixed)

    def differentiate(
        self, outputs: Sequence[Tensor], u: Sequence[Tensor], *, retain_graph: bool
    ) -> tuple[Tensor, ...]:
        """Jᵀu, keeping the gradients that the weights need."""
        places: list[Any] = [*self.roots, *self.tape.edges]
        found: tuple[Tensor | None, ...] = torch.autograd.grad(
            list(outputs), places, list(u), retain_graph=retain_graph, allow_unused=True
        )
        rest = iter(found[len(self.roots) :])
        for entry in self.tape.entries:
            if entry.edges:
                self.output_gradients[entry] = tuple(next(rest) for _ in entry.edges)
                entry.edges = ()  # they keep the graph alive
        return tuple(torch.zeros_like(x) if g is None else g for x, g in zip(self.roots, found, strict=False))

    def weight_gradients(
        self, inputs: Sequence[Tensor], tensors: Tensors, *, linear: bool, times: Tensor | None = None
    ) -> tuple[list[Tensor | None], dict[int, Tensor]]:
        total: list[Tensor | None] = [None] * len(tensors.weights)

        def weigh(entry: TapeEntry, call: Callable[[Sequence[Tensor]], Any]) -> Any:
            own = {i: tensors.weights[i].detach().requires_grad_() for i in entry.weights}
            weights = [own.get(i, w) for i, w in enumerate(tensors.weights)]
            with torch.enable_grad():
                result = call(weights)
            made = [r for r in pytree.tree_leaves(result) if isinstance(r, Tensor)]
            pairs = [
                (r, g if times is None else per_sample(times, g) * g)
                for r, g in zip(made, self.output_gradients[entry], strict=True)
                if g is not None and r.requires_grad
            ]
            if pairs:
                found = torch.autograd.grad(
                    [r for r, _ in pairs], list(own.values()), [g for _, g in pairs], allow_unused=True
                )
                for i, gradient in zip(own, found, strict=True):
                    add_gradient(total, i, gradient)
            return pytree.tree_map_only(Tensor, Tensor.detach, result)

        with torch.no_grad(), self.as_recorded():
            values = self.tape.run(inputs, tensors, linear=linear, weigh=weigh)
        return total, values

    def plain_gradients(
        self, inputs: Sequence[Tensor], tensors: Tensors, r: Tensor
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """∇θ and ∇x of r·F(x), by ordinary differentiation of the pass made once more."""
        own = [w.detach().requires_grad_() for w in tensors.weights]
        roots = [x.detach().requires_grad_() for x in inputs]
        with torch.enable_grad(), self.as_recorded():
            values = self.tape.run(roots, Tensors(own, tensors.fixed), linear=False)
            found = torch.autograd.grad(values[self.outputs[0]], [*own, *roots], r, allow_unused=True)
        return list(found[: len(own)]), list(found[len(own) :])

    def as_recorded(self) -> AbstractContextManager[Any]:
        enabled = self.autocast is not None
        return torch.autocast(self.device, dtype=self.autocast, enabled=enabled)


def add_gradient(total: list[Tensor | None], index: int, gradient: Tensor | None) -> None:
    if gradient is not None:
        before = total[index]
        total[index] = gradient if before is None else before + gradient


def _for_hooks(held: HeldPass, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Zeros for weights that nothing reaches but whose hooks are called all the same."""
    pairs = zip(held.kept.weights, gradients, strict=True)
    return [torch.zeros_like(w) if g is None and w._backward_hooks else g for w, g in pairs]  # noqa: SLF001


class _Gradient(torch.autograd.Function):
    """g = Jᵀu for u that is not a multiple of the task's gradient, as a function of u and the weights."""

    @staticmethod
    def forward(ctx: Any, held: Held, n_u: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.held, ctx.n_u = held, n_u
        ctx.save_for_backward(*tensors[n_u:], *held.tape.fixed)
        ctx.set_materialize_grads(False)
        return tuple(g.clone() for g in held.gradients)

    @staticmethod
    @once
    def backward(ctx: Any, *directions: Tensor | None) -> tuple[Tensor | None, ...]:
        held: Held = ctx.held
        n = len(held.tape.weights)
        tensors = Tensors(ctx.saved_tensors[:n], ctx.saved_tensors[n:])
        inputs = [
            torch.zeros_like(g) if v is None else v.to(g.dtype) for v, g in zip(directions, held.gradients, strict=True)
        ]
        weights, values = held.weight_gradients(inputs, tensors, linear=True)
        return (None, None, *(values[slot] for slot in held.outputs), *_for_hooks(held, weights))


class Outputs(torch.autograd.Function):
    """F(x) as a function of x and the weights, with a second way in, for the direction that a prior asks for."""

    @staticmethod
    def forward(ctx: Any, held: HeldPass, outputs: Tensor, n: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.held, ctx.n = held, n
        ctx.save_for_backward(*tensors, *held.kept.fixed)
        ctx.set_materialize_grads(False)
        return outputs.clone(), *zeros_like(tensors[:n])

    @staticmethod
    @once
    def backward(ctx: Any, r: Tensor | None, *directions: Tensor | None) -> tuple[Any, ...]:
        held: HeldPass = ctx.held
        n, m = ctx.n, ctx.n + len(held.kept.weights)
        x, tensors = ctx.saved_tensors[:n], Tensors(ctx.saved_tensors[n:m], ctx.saved_tensors[m:])
        asked = any(v is not None for v in directions)
        shift = [torch.zeros_like(xi) if v is None else v for v, xi in zip(directions, x, strict=True)]
        times = held.multiple(r)
        by_x: list[Tensor | None] = [None] * n
        wanted_by_x = ctx.needs_input_grad[3 : 3 + n]
        if isinstance(times, Tensor):
            moved = [xi + v / per_sample(times, v) for xi, v in zip(x, shift, strict=True)] if asked else list(x)
            weights, _ = held.weight_gradients(moved, tensors, linear=False, times=times)
            by_x = [per_sample(times, g) * g for g in held.gradients]
        elif times:
            moved = [torch.add(xi, v, alpha=1 / times) for xi, v in zip(x, shift, strict=True)] if asked else list(x)
            weights, _ = held.weight_gradients(moved, tensors, linear=False)
            if times != 1:
                weights = [None if w is None else w * times for w in weights]
            by_x = [times * g if wanted else None for g, wanted in zip(held.gradients, wanted_by_x, strict=True)]
        else:
            weights = [None] * len(tensors.weights)
            if r is not None and times is None:
                weights, by_x = held.plain_gradients(x, tensors, r)
            if asked:
                for i, gradient in enumerate(held.weight_gradients(shift, tensors, linear=True)[0]):
                    add_gradient(weights, i, gradient)
        by_x = [g if wanted else None for g, wanted in zip(by_x, wanted_by_x, strict=True)]
        return (None, None, None, *by_x, *_for_hooks(held, weights))


class Direction(torch.autograd.Function):
    """g = s·Jᵀρ: hands s·v back to where the outputs came from."""

    @staticmethod
    def forward(ctx: Any, held: HeldPass, *ways: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG004 (only their gradients matter)
        ctx.held = held
        if held.scale is None:
            raise NotHeldError("the gradient of this pass is not a multiple of the task's.")
        return tuple(per_sample(held.scale, g) * g for g in held.gradients)

    @staticmethod
    @once
    def backward(ctx: Any, *directions: Tensor) -> tuple[Tensor | None, ...]:
        return (None, *(per_sample(ctx.held.scale, v) * v for v in directions))


def record(
    model: Model,
    arguments: Call,
    features: Sequence[Tensor],
    *,
    attached: bool,
    log: list[Logged] | None = None,
) -> tuple[Held, Any, list[Tensor]]:
    """Run the model once: the pass with its gates, the outputs, and those of them that depend on the input."""
    roots = tuple(x.clone() for x in features)
    device = roots[0].device.type
    autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    recorder = Recorder(roots, attached=attached, log=log)
    with without_checkpoints(every=not attached) as met, recorder:
        outputs = arguments.call(model, list(roots))
    found = [t for t in pytree.tree_leaves(outputs) if isinstance(t, Tensor)]
    tensors = list({id(t): t for t in found}.values())
    slots = recorder.finish(tensors)
    moving = [t for t, slot in zip(tensors, slots, strict=True) if slot is not None]
    if not moving:
        raise NotHeldError("no output depends on the input in a way that can be seen.")
    held = Held(recorder.tape, roots, device, autocast, reentrant=bool(met))
    held.outputs = tuple(slot for slot in slots if slot is not None)
    return held, outputs, moving


def differentiate_held(model: Model, arguments: Call, score: Score, *, create_graph: bool) -> Pass:
    """Outputs with autograd's own graph, and a gradient whose dependence on the weights needs no second derivative."""
    x = leaves(arguments.features, create_graph=create_graph)
    held, outputs, moving = record(model, arguments, x, attached=True)
    # One output may be made from another: the score is to be differentiated by each alone.
    own = {id(t): t.view_as(t) for t in moving}
    outputs = pytree.tree_map_only(Tensor, lambda t: own.get(id(t), t), outputs)
    moving = list(own.values())
    scores = one_score(score(outputs))
    # The score of a logarithm has weights that depend on the outputs.
    weights: tuple[Tensor | None, ...] = torch.autograd.grad(scores.sum(), moving, create_graph=True, allow_unused=True)
    used = [(i, u) for i, u in enumerate(weights) if u is not None]
    held.outputs = tuple(held.outputs[i] for i, _ in used)
    held.gradients = held.differentiate([moving[i] for i, _ in used], [u.detach() for _, u in used], retain_graph=True)
    gradients = _Gradient.apply(held, len(used), *(u for _, u in used), *held.tape.weights)  # type: ignore[no-untyped-call]
    return Pass(outputs, scores, gradients)


def differentiate_shared(
    model: Model,
    arguments: Call,
    score: Score,
    task: Callable[[Any], Tensor],
    *,
    create_graph: bool,
) -> Pass:
    """Outputs and gradient from one pass whose products with the weights the task and the prior share."""
    x = leaves(arguments.features, create_graph=create_graph)
    held, outputs, moving = record(model, arguments, [xi.detach().requires_grad_() for xi in x], attached=False)
    if len(moving) != 1:
        raise NotSharedError(f"{len(moving)} outputs depend on the input, and the task may use all of them.")
    if held.autocast == torch.float16:
        raise NotSharedError("float16 ends at 6e-8, and the task's gradient, of a mean over samples, may be smaller.")
    if not held.tape.keeps_rows:
        raise NotSharedError("samples of the batch may depend on each other.")
    result, *ways = Outputs.apply(held, moving[0].detach(), len(x), *x, *held.tape.weights)  # type: ignore[no-untyped-call]
    outputs = pytree.tree_map_only(Tensor, lambda t: result if t is moving[0] else t, outputs)
    scores = one_score(score(outputs))
    (u,) = torch.autograd.grad(scores.sum(), result, retain_graph=True)
    (r,) = torch.autograd.grad(task(outputs), result, retain_graph=True)
    held.cotangent, held.scale, held.shared = common(u, r)
    held.gradients = held.differentiate(moving, [held.cotangent], retain_graph=False)
    gradients = Direction.apply(held, *ways)  # type: ignore[no-untyped-call]
    return Pass(outputs, scores, gradients)


def one_score(scores: Tensor) -> Tensor:
    if scores.dim() != 1:
        raise NotHeldError("each output is attributed.")
    return scores
