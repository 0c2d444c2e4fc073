"""A forward pass as a list of linear functions, with every gate held as it was."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from axiograd.training.held_gates.operators import Place


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
class TapeEntry:
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

    def template(self, *, linear: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Its arguments; with `linear`, zeros for what is added."""
        if not (linear and self.added):
            return self.args, self.kwargs
        args = tuple(without(a) if i in self.added else a for i, a in enumerate(self.args))
        return args, {k: without(a) if k in self.added else a for k, a in self.kwargs.items()}


@dataclass(eq=False)
class Tape:
    """What one forward pass did to the values that depend on its inputs."""

    entries: list[TapeEntry] = field(default_factory=list)
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
            used = {item.index for item in leaves((entry.args, entry.kwargs)) if isinstance(item, Slot)}
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

            def call(weights: Sequence[Tensor], entry: TapeEntry = entry) -> Any:
                given, named = filled(entry.template(linear=linear), values, weights, tensors.fixed)
                return entry.function(*given, **named)

            result = weigh(entry, call) if weigh is not None and entry.weights else call(tensors.weights)
            made = zip(entry.results, results(result), strict=True)
            values.update({slot: value for slot, value in made if slot is not None})
            for slot in entry.last:
                values.pop(slot, None)
        return values


@dataclass(frozen=True)
class Logged:
    """One call on values that depend on the input, as a second pass through the same model will make it again."""

    name: str
    #: Of each argument: what it is, if it is a tensor; itself, if it is a number or a word.
    arguments: tuple[Any, ...]
    #: The linear function that it became; None for a choice, which is made once.
    entry: TapeEntry | None
    #: Whether the function itself is that linear function.
    plain: bool
    result: Any
    in_place: bool = False


@dataclass(frozen=True)
class Tensors:
    """The weights and the other tensors of a tape, as they were saved."""

    weights: Sequence[Tensor]
    fixed: Sequence[Tensor]


def leaves(item: Any) -> Iterator[Any]:
    if isinstance(item, list | tuple):
        for part in item:
            yield from leaves(part)
    elif isinstance(item, dict):
        yield from leaves(tuple(item.values()))
    else:
        yield item


def mapped(item: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(item, torch.Size):
        return item
    if isinstance(item, list | tuple):
        parts = [mapped(part, function) for part in item]
        return parts if isinstance(item, list) else tuple(parts)
    if isinstance(item, dict):
        return {key: mapped(part, function) for key, part in item.items()}
    return function(item)


def results(result: Any) -> tuple[Tensor, ...]:
    return tuple(value for value in leaves(result) if isinstance(value, Tensor))


def without(item: Any) -> Any:
    """An argument that is added, as zero."""

    def zero(leaf: Any) -> Any:
        if isinstance(leaf, Slot) or leaf is None:
            return leaf
        return _Zero(leaf) if isinstance(leaf, Weight | Fixed) else type(leaf)(0)

    return mapped(item, zero)


@dataclass(frozen=True)
class _Zero:
    of: Weight | Fixed


def filled(
    item: Any, values: Mapping[int, Tensor], weights: Sequence[Tensor] | Mapping[int, Tensor], fixed: Sequence[Tensor]
) -> Any:
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

    return mapped(item, fill)
