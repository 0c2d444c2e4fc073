"""A forward pass as a list of linear functions, with every gate held as it was."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.overrides import TorchFunctionMode

from axiograd.training.held_gates.operators import (
    GATES,
    LINEAR,
    LOOKS,
    SHAPED,
    STEPS,
    NotHeldError,
    Place,
    check_linear,
)
from axiograd.training.held_gates.rows import keeps_rows


@dataclass(frozen=True)
class Slot:
    """A value that depends on the input, by its number."""

    index: int


@dataclass(frozen=True)
class Weight:
    """A tensor that is trained, or made from such ones."""

    index: int


@dataclass(frozen=True)
class Fixed:
    """Any other tensor: a buffer, a mask, the choice that a gate made."""

    index: int


@dataclass(eq=False)
class Entry:
    """One linear function of the tape."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    added: frozenset[Place]
    #: Of each tensor of the result: its slot, or None.
    results: tuple[int | None, ...]
    weights: tuple[int, ...] = ()
    #: Where the gradient of each result arrives, if there are weights.
    edges: tuple[GradientEdge, ...] = ()
    #: Slots that nothing uses any more after this entry.
    last: tuple[int, ...] = ()


@dataclass(eq=False)
class Tape:
    """What one forward pass did to the values that depend on its inputs."""

    entries: list[Entry] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    fixed: list[Tensor] = field(default_factory=list)
    n_slots: int = 0
    #: Multiplications with weights, roughly.
    work: float = 0.0
    #: Whether every function is known to keep the samples of a batch apart.
    keeps_rows: bool = True

    @property
    def edges(self) -> list[GradientEdge]:
        """Where the gradients arrive that are to be kept, entry by entry."""
        return [edge for entry in self.entries for edge in entry.edges]

    def close(self, outputs: Iterable[int]) -> None:
        """Find out when each value is used for the last time."""
        seen = set(outputs)
        for entry in reversed(self.entries):
            used = {item.index for item in _leaves((entry.args, entry.kwargs)) if isinstance(item, Slot)}
            made = {slot for slot in entry.results if slot is not None}
            entry.last = tuple((used | made) - seen)
            seen |= used | made

    def run(
        self, inputs: Sequence[Tensor], tensors: "Tensors", *, linear: bool, weigh: Any = None
    ) -> dict[int, Tensor]:
        """The pass at other inputs, the gates held; `linear` leaves out what is added.

        `weigh(entry, call)` may run an entry that has weights in its own way.
        """
        values = dict(enumerate(inputs))
        for entry in self.entries:
            args, kwargs = entry.args, entry.kwargs
            if linear and entry.added:
                args = tuple(_without(a) if i in entry.added else a for i, a in enumerate(args))
                kwargs = {k: _without(a) if k in entry.added else a for k, a in kwargs.items()}

            def call(weights: Sequence[Tensor], entry: Entry = entry, args: Any = args, kwargs: Any = kwargs) -> Any:
                filled, named = _filled((args, kwargs), values, weights, tensors.fixed)
                return entry.function(*filled, **named)

            result = weigh(entry, call) if weigh is not None and entry.weights else call(tensors.weights)
            made = zip(entry.results, _results(result), strict=True)
            values.update({slot: value for slot, value in made if slot is not None})
            for slot in entry.last:
                values.pop(slot, None)
        return values


@dataclass(frozen=True)
class Tensors:
    """The weights and the other tensors of a tape, as they were saved."""

    weights: Sequence[Tensor]
    fixed: Sequence[Tensor]


class Recorder(TorchFunctionMode):
    """Runs a model as it is and writes the tape; with `attached=False` its weights take no part in autograd."""

    def __init__(self, roots: Sequence[Tensor], *, attached: bool) -> None:
        super().__init__()
        self.tape = Tape()
        self.attached = attached
        self._slots: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        self._numbers: dict[int, int] = {}
        self._versions: list[tuple[Tensor, int]] = []
        self._viewed: dict[int, weakref.ref[Tensor]] = {}
        self._outside: set[Node] = set()
        self._roots = {root.grad_fn for root in roots}
        self._batch = len(roots[0]) if roots[0].dim() else 1
        for root in roots:
            self._bind(root)

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self.moves((args, kwargs)):
            return function(*args, **kwargs)
        name = _name(function)
        if name in LOOKS or name in STEPS or (name in SHAPED and not self.moves(args[:1])):
            return function(*args, **kwargs)
        if not torch.is_grad_enabled():
            raise NotHeldError(f"{name} runs where gradients are switched off.")
        in_place = name.endswith("_") and not name.endswith("__")
        if in_place:
            self._check_in_place(name, args[0])
            name = name[:-1]
        if name in GATES:
            if kwargs.get("inplace"):
                self._check_in_place(name, args[0])
            return GATES[name](_Call(self, function, args, kwargs))
        if name not in LINEAR:
            raise NotHeldError(f"{name} is no linear function and no gate.")
        check_linear(name, args, kwargs, self.moves)
        replayed = getattr(Tensor, name) if in_place else function
        call = _Call(self, function, args, kwargs)
        return call.hold(call.run(), replayed, *args, added=LINEAR[name].added, **kwargs)

    def moves(self, item: Any) -> bool:
        """Whether anything in it depends on the input."""
        moving = False
        for leaf in _leaves(item):
            if isinstance(leaf, Tensor):
                moving |= self.slot(leaf) is not None
        return moving

    def slot(self, tensor: Tensor) -> int | None:
        """The number of a value that depends on the input; None if it does not."""
        known = self._slots.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        if tensor.grad_fn is not None and self._leads_here(tensor.grad_fn):
            raise NotHeldError(f"{type(tensor.grad_fn).__name__} was not made by a function of torch that can be seen.")
        return None

    def finish(self, outputs: Iterable[Tensor]) -> list[int | None]:
        """The slots of the outputs, after everything that was kept is seen to be as it was."""
        for tensor, version in self._versions:
            if tensor._version != version:  # noqa: SLF001 (as autograd does)
                raise NotHeldError("a tensor was changed in place after it was used.")
        slots = [self.slot(output) for output in outputs]
        self.tape.close(slot for slot in slots if slot is not None)
        return slots

    def _leads_here(self, node: Node) -> bool:
        """Whether a graph comes from the inputs."""
        stack, seen = [node], set()
        while stack:
            current = stack.pop()
            if current in self._roots:
                return True
            if current not in self._outside and current not in seen:
                seen.add(current)
                stack += [following for following, _ in current.next_functions if following is not None]
        self._outside |= seen
        return False

    def _check_in_place(self, name: str, target: Tensor) -> None:
        if self.slot(target) is None:
            raise NotHeldError(f"{name} writes what depends on the input into another tensor.")
        viewed = self._viewed.get(id(target))
        if target._base is not None or (viewed is not None and viewed() is target):  # noqa: SLF001
            raise NotHeldError(f"{name} changes a tensor in place that has views.")

    def _bind(self, value: Tensor) -> int:
        base = value._base  # noqa: SLF001 (no other way to ask)
        if base is not None:
            self._viewed[id(base)] = weakref.ref(base)
        slot = self.tape.n_slots
        self.tape.n_slots += 1
        self._slots[id(value)] = (weakref.ref(value), slot)
        return slot

    def _reference(self, tensor: Tensor, slots: dict[int, int]) -> Slot | Weight | Fixed:
        if id(tensor) in slots:
            return Slot(slots[id(tensor)])
        kept = self.tape.weights if tensor.requires_grad else self.tape.fixed
        number = self._numbers.get(id(tensor))
        if number is None:
            number = self._numbers[id(tensor)] = len(kept)
            kept.append(tensor)
            self._versions.append((tensor, tensor._version))  # noqa: SLF001
        return Weight(number) if tensor.requires_grad else Fixed(number)


class _Call:
    """One call, with the slots that its arguments had before it ran: it may work in place."""

    def __init__(self, recorder: Recorder, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.moves = recorder.moves
        self._recorder = recorder
        tensors = [leaf for leaf in _leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        found = {id(tensor): recorder.slot(tensor) for tensor in tensors}
        self._slots = {key: slot for key, slot in found.items() if slot is not None}

    def run(self) -> Any:
        if self._recorder.attached:
            return self.function(*self.args, **self.kwargs)
        args, kwargs = _mapped((self.args, self.kwargs), self._cut)
        return self.function(*args, **kwargs)

    def hold(
        self, result: Any, function: Callable[..., Any], *args: Any, added: Iterable[Place] = (), **kwargs: Any
    ) -> Any:
        """Write down `function(*args)`, which is linear, as what made the result."""
        recorder = self._recorder

        def reference(leaf: Any) -> Any:
            return recorder._reference(leaf, self._slots) if isinstance(leaf, Tensor) else leaf  # noqa: SLF001

        template, named = _mapped((args, kwargs), reference)
        weights = tuple(dict.fromkeys(i.index for i in _leaves((template, named)) if isinstance(i, Weight)))
        slots: list[int | None] = []
        edges: list[GradientEdge] = []
        name = _name(self.function)
        name = name if name.endswith("__") else name.removesuffix("_")
        moving = [leaf for leaf in _leaves((self.args, self.kwargs)) if id(leaf) in self._slots]
        recorder.tape.keeps_rows &= keeps_rows(
            name,
            self.args,
            self.kwargs,
            moving,
            _results(result),
            recorder._batch,  # noqa: SLF001
        )
        for value in _results(result):
            floating = value.is_floating_point() or value.is_complex()
            if floating and not value.requires_grad:
                raise NotHeldError(f"the gradient of {_name(self.function)} is cut.")
            slots.append(recorder._bind(value) if floating else None)  # noqa: SLF001
            if weights and floating:
                edges.append(get_gradient_edge(value))
                matrices = [w for w in (recorder.tape.weights[i] for i in weights) if w.dim() > 1]
                recorder.tape.work += sum(value.numel() * w[0].numel() for w in matrices)
        entry = Entry(function, template, named, frozenset(added), tuple(slots), weights, tuple(edges))
        recorder.tape.entries.append(entry)
        return result

    def _cut(self, leaf: Any) -> Any:
        trained = isinstance(leaf, Tensor) and leaf.requires_grad and id(leaf) not in self._slots
        return leaf.detach() if trained else leaf


def _name(function: Any) -> str:
    name = str(getattr(function, "__name__", ""))
    module = getattr(function, "__module__", None) or "torch"
    if module.partition(".")[0] != "torch" or module.startswith("torch._ops"):
        return f"{module}.{name}"
    return str(function.__self__.__name__) if name == "__get__" else name


def _leaves(item: Any) -> Iterator[Any]:
    if isinstance(item, list | tuple):
        for part in item:
            yield from _leaves(part)
    elif isinstance(item, dict):
        yield from _leaves(tuple(item.values()))
    else:
        yield item


def _mapped(item: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(item, torch.Size):
        return item
    if isinstance(item, list | tuple):
        parts = [_mapped(part, function) for part in item]
        return parts if isinstance(item, list) else tuple(parts)
    if isinstance(item, dict):
        return {key: _mapped(part, function) for key, part in item.items()}
    return function(item)


def _results(result: Any) -> tuple[Tensor, ...]:
    return tuple(value for value in _leaves(result) if isinstance(value, Tensor))


def _without(item: Any) -> Any:
    """An argument that is added, as zero."""

    def zero(leaf: Any) -> Any:
        if isinstance(leaf, Slot) or leaf is None:
            return leaf
        return _Zero(leaf) if isinstance(leaf, Weight | Fixed) else type(leaf)(0)

    return _mapped(item, zero)


@dataclass(frozen=True)
class _Zero:
    of: Weight | Fixed


def _filled(item: Any, values: dict[int, Tensor], weights: Sequence[Tensor], fixed: Sequence[Tensor]) -> Any:
    def fill(leaf: Any) -> Any:
        if isinstance(leaf, Slot):
            return values[leaf.index]
        if isinstance(leaf, Weight):
            return weights[leaf.index]
        if isinstance(leaf, Fixed):
            return fixed[leaf.index]
        if isinstance(leaf, _Zero):
            source = weights[leaf.of.index] if isinstance(leaf.of, Weight) else fixed[leaf.of.index]
            return torch.zeros_like(source, requires_grad=False)
        return leaf

    return _mapped(item, fill)
