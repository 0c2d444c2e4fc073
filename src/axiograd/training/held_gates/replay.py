"""A step with a prior as plain forward and backward passes, for wrappers that want to see nothing else.

`fully_shard` frees and gathers weights, and a static graph counts gradients, by the hooks of one ordinary forward and
backward pass. Where u = s·r, ∇θ [L + Ω] = ∇θ r·F_gates(x + s·v) is the gradient of one: the model is run as it is, on
the shifted input, while a mode puts in the gates of a first look. Elsewhere it takes two: r·F(x), and u·F_gates(v)
without what is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from axiograd._calls import Call, Model
from axiograd._state import PARALLEL, all_modules, unwrap_parallel
from axiograd.attribution.passes import Pass, Score, attribution_pass, leaves as to_differentiate_by
from axiograd.errors import ConfigurationError
from axiograd.homogeneity.conversion.scale import per_sample
from axiograd.training.held_gates.checkpointing import without_checkpoints
from axiograd.training.held_gates.once import Refused, once
from axiograd.training.held_gates.operators import NotHeldError
from axiograd.training.held_gates.recorder import Recorder, name_of
from axiograd.training.held_gates.step import Held, one_score, record
from axiograd.training.held_gates.tape import Logged, Slot, Weight, filled, leaves, mapped, results


class Replayer(Recorder):
    """Runs the model again, on other numbers, with the choices of the pass that was logged."""

    def __init__(
        self, roots: Sequence[Tensor], log: Sequence[Logged], fixed: Sequence[Tensor], *, linear: bool
    ) -> None:
        super().__init__(roots, attached=True, log=[])
        self._linear, self._fixed = linear, fixed
        self._rest = iter(log)

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        # Without gradients it is the wrapper that calls: the model itself, the first pass would have refused.
        if not torch.is_grad_enabled() or not self.moves((args, kwargs)) or self.is_look(function, args):
            return function(*args, **kwargs)
        logged = next(self._rest, None)
        slots = [self.slot(leaf) if isinstance(leaf, Tensor) else None for leaf in leaves((args, kwargs))]
        self._check_same(logged, function, args, kwargs, slots)
        if logged is None or logged.entry is None:
            return None if logged is None else logged.result
        if logged.plain:
            result = function(*self._without_added(logged, args), **kwargs)
            held = results(result)
        else:
            if logged.name.startswith("dropout"):
                self._draw_again(logged, function, args, kwargs)
            result, held = self._gate(logged, args, kwargs)
        for slot, value in zip(logged.entry.results, held, strict=True):
            if slot is not None:
                self.bind(value, slot)
        return result

    def finish_replay(self, outputs: Sequence[Tensor], slots: Sequence[int]) -> list[Tensor]:
        """The outputs that depend on the input, by their slots."""
        if next(self._rest, None) is not None:
            raise NotHeldError("the model did less in its second pass than in its first.")
        found = {self.slot(output): output for output in outputs}
        missing = [slot for slot in slots if slot not in found]
        if missing:
            raise NotHeldError("an output of the model's first pass is missing in its second.")
        return [found[slot] for slot in slots]

    def _check_same(
        self, logged: Logged | None, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], slots: Sequence[Any]
    ) -> None:
        here = list(leaves((args, kwargs)))
        before = () if logged is None else logged.arguments
        same = logged is not None and len(here) == len(before)
        for leaf, known, slot in zip(here, before, slots, strict=False):
            if isinstance(leaf, Tensor):
                same &= isinstance(known, Slot) == (slot is not None) and (slot is None or known.index == slot)
            elif isinstance(leaf, int | float | str | None):
                same &= known == leaf
        if not same:
            raise NotHeldError(f"{name_of(function)} is called differently in the second of two equal passes.")

    def _without_added(self, logged: Logged, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Without biases, if only the linear part is wanted."""
        if not self._linear or logged.entry is None or not logged.entry.added:
            return args

        def zero(leaf: Any) -> Any:
            if isinstance(leaf, Tensor):
                return leaf if self.slot(leaf) is not None else torch.zeros_like(leaf)
            return leaf if leaf is None else type(leaf)(0)

        return tuple(mapped(arg, zero) if i in logged.entry.added else arg for i, arg in enumerate(args))

    def _draw_again(self, logged: Logged, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Advance the random state as the function does, and see that its mask is the one that is held."""
        drawn = function(torch.ones_like(args[0].detach()), *args[1:], **kwargs)
        mask = logged.entry.args[1:] if logged.entry is not None else ()
        if mask and not torch.equal(drawn, self._fixed[mask[0].index]):
            raise NotHeldError(f"{logged.name} drew a different mask in the second of two equal passes.")

    def _gate(self, logged: Logged, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Tensor, ...]]:
        entry, target = logged.entry, args[0]
        if entry is None:
            raise NotHeldError("a gate has not been logged.")
        in_place = logged.in_place
        values: dict[int, Tensor] = {}
        weights: dict[int, Tensor] = {}
        for leaf, known in zip(leaves((args, kwargs)), logged.arguments, strict=True):
            if isinstance(known, Slot):
                values[known.index] = leaf.clone() if in_place and leaf is target else leaf
            elif isinstance(known, Weight):
                weights[known.index] = leaf
        given, named = filled(entry.template(linear=self._linear), values, weights, self._fixed)
        value = entry.function(*given, **named)
        if in_place:
            value = target.copy_(value)
        if isinstance(logged.result, Tensor):
            return value, (value,)
        # Values and the indices that they have, as they were.
        parts = [value, *list(logged.result)[1:]]
        return type(logged.result)(parts), (value,)


@dataclass(eq=False)
class Replayed:
    """What a look at the model found, and what the plain passes of the step need."""

    model: Model
    arguments: Call
    held: Held
    log: list[Logged]
    x: tuple[Tensor, ...]
    outputs: list[Tensor]
    u: list[Tensor]
    gradients: tuple[Tensor, ...]
    #: Whether u is a multiple of r for every sample. No numbers decide it: all processes must make the same passes.
    shared: bool

    def connect(self, total: Tensor) -> Tensor:
        """The same number, whose `backward()` reaches the weights by plain passes of the model."""
        found = torch.autograd.grad(
            total, [*self.outputs, *self.gradients], retain_graph=True, allow_unused=True, materialize_grads=True
        )
        r, v = found[: len(self.outputs)], found[len(self.outputs) :]
        if self.shared:
            scale = _multiple(self.u[0], r[0])
            moved = [x + per_sample(scale, vi) * vi for x, vi in zip(self.x, v, strict=True)]
            passes: list[tuple[Sequence[Tensor], list[Tensor]]] = [(r, self._run(moved, linear=False))]
        else:
            # The pass that counts is the last one.
            linear = self._run([vi.to(x.dtype) for vi, x in zip(v, self.x, strict=True)], linear=True)
            passes = [(self.u, linear), (r, self._run(list(self.x), linear=False))]
        weights = [w for ws, _ in passes for w in ws]
        connected: Tensor = _Connected.apply(weights, total, *(z for _, zs in passes for z in zs))  # type: ignore[no-untyped-call]
        return connected

    def _run(self, inputs: Sequence[Tensor], *, linear: bool) -> list[Tensor]:
        """A plain pass on other inputs, the gates held; the linear one leaves buffers and random state as they were."""
        roots = [(x if x.requires_grad else x.detach().requires_grad_()).clone() for x in inputs]
        device = roots[0].device
        with (
            attribution_pass(self.model, device, create_graph=True, preserve=linear),
            self.held.as_recorded(),
            _attributes_kept(self.model),
        ):
            replayer = Replayer(roots, self.log, self.held.tape.fixed, linear=linear)
            with without_checkpoints(every=True), replayer:
                outputs = self.arguments.call(self.model, list(roots))
        tensors = [t for t in pytree.tree_leaves(outputs) if isinstance(t, Tensor)]
        return replayer.finish_replay(tensors, self.held.outputs)


def _multiple(u: Tensor, r: Tensor) -> Tensor:
    """s with u = s·r for every sample, 0 where r = 0."""
    u, r = u.reshape(len(u), -1), r.reshape(len(r), -1)
    largest = r.abs().amax(1)
    unit = r / torch.where(largest > 0, largest, torch.ones_like(largest))[:, None]
    times = (u * unit).sum(1) / unit.square().sum(1).clamp(min=0.5)
    return torch.where(largest > 0, times / largest, torch.zeros_like(times))


class _Connected(torch.autograd.Function):
    """The total as a function of outputs of further passes, whose gradients are known."""

    @staticmethod
    def forward(ctx: Any, weights: Sequence[Tensor], total: Tensor, *outputs: Tensor) -> Tensor:  # noqa: ARG004 (only their gradients matter)
        ctx.weights = weights
        return total.clone()

    @staticmethod
    @once
    def backward(ctx: Any, times: Tensor) -> tuple[Any, ...]:
        return None, times, *(times.to(w.dtype) * w for w in ctx.weights)


_ONLY_TOTAL = (
    "the gradients of this step come by a plain pass of the wrapped model (fully_shard, static_graph), which has those "
    "of terms.total only: call terms.total.backward(), and put further terms into the task loss or the prior."
)


def refused(item: Any) -> Any:
    """The same values, which raise where something other than the total is trained through them."""
    return pytree.tree_map_only(
        Tensor,
        lambda t: Refused.apply(ConfigurationError(_ONLY_TOTAL), t.clone())[0] if t.requires_grad else t,  # type: ignore[no-untyped-call]
        item,
    )


def look(
    model: Model, arguments: Call, score: Score, found: list[Replayed], *, shared: bool, create_graph: bool
) -> Pass:
    """Outputs and gradient of a first pass, as values to build the loss on; `Replayed.connect` does the rest."""
    x = to_differentiate_by(arguments.features, create_graph=create_graph)
    log: list[Logged] = []
    first = unwrap_parallel(model)
    held, outputs, moving = record(
        first, arguments, [xi.detach().requires_grad_() for xi in x], attached=False, log=log
    )
    own = {id(t): t.detach().requires_grad_() for t in moving}
    if any(isinstance(t, Tensor) and t.requires_grad and id(t) not in own for t in pytree.tree_leaves(outputs)):
        raise NotHeldError("an output depends on weights but not on the input.")
    outputs = pytree.tree_map_only(Tensor, lambda t: own.get(id(t), t), outputs)
    ends = list(own.values())
    scores = one_score(score(outputs))
    u = torch.autograd.grad(scores.sum(), ends, retain_graph=True, allow_unused=True, materialize_grads=True)
    gradients = held.differentiate(moving, u, retain_graph=False)
    if not held.tape.weights:
        raise NotHeldError("no weight takes part in what the input does to the output.")
    gradients = tuple(g.detach().requires_grad_() for g in gradients)
    shared = shared and len(ends) == 1 and held.tape.keeps_rows
    found.append(Replayed(model, arguments, held, log, x, ends, list(u), gradients, shared))
    return Pass(outputs, scores, gradients)


@contextmanager
def _attributes_kept(model: Model) -> Iterator[None]:
    """Tensors that modules store in their forward pass are those of the first look, whose graph is gone."""
    modules = [m for m in all_modules(model) if not isinstance(m, PARALLEL)]
    before = [(vars(m), {k: v for k, v in vars(m).items() if isinstance(v, Tensor)}) for m in modules]
    try:
        yield
    finally:
        for now, kept in before:
            for name in [k for k, v in now.items() if isinstance(v, Tensor) and kept.get(k) is not v]:
                if name in kept:
                    now[name] = kept[name]
                else:
                    del now[name]
