"""What X-Gradient remembers of its proofs, and what it looks at before it relies on one.

Looked at on every call, in a few microseconds: the modules and their attributes as they are (not what those lead to),
modes and hooks, the inputs' dtypes, devices and shapes, the numbers that decided the proof (a bias that is zero), and
autocast. What Python can change without any of these changing is the business of the check along the path.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from operator import methodcaller
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from axiograd._calls import Call
from axiograd._functions import own_values
from axiograd._state import all_modules
from axiograd.homogeneity.certification import Proof
from axiograd.homogeneity.rules.registry import REVISIONS

#: Proofs kept, and shapes that are known to be covered by one: oldest first out.
_PROOFS, _SHAPES = 8, 256
#: Shares of the time in calls, and of all the time since the first one, that checks along the path may take.
_SHARE, _IDLE = 0.015, 0.001

#: The attributes themselves, and the modules and hooks among them.
_LOOKED_INTO = ("", "_modules", "_forward_hooks", "_forward_pre_hooks")
_VALUES = methodcaller("values")


class Snapshot:
    """The attributes of all modules behind a model, by identity or by value; one level, nothing is followed."""

    def __init__(self, model: Callable[..., Any], ignored: set[tuple[int, str]]) -> None:
        self._ignored = ignored
        self._parts: list[Mapping[Any, Any]] = [*_dictionaries(model, _LOOKED_INTO), *_classes(model)]
        self._keys = [list(content) for content in self._parts]
        self._sizes, self._values = self._look()
        self._modules = all_modules(model)
        self._types = list(map(type, self._modules))
        self._model, self._held = model, held(model)

    def _look(self) -> tuple[list[int], list[Any]]:
        """How many attributes each part has, and all of them in a row."""
        return list(map(len, self._parts)), list(chain.from_iterable(map(_VALUES, self._parts)))

    def changes(self) -> list[tuple[int, str]]:
        """Which attributes are others than they were: (identity of their dictionary, name)."""
        if not alike(held(self._model), self._held):
            return [(id(self._model), "closure")]
        try:
            # The same objects are equal without a look at their values.
            if list(map(type, self._modules)) == self._types and self._look() == (self._sizes, self._values):
                return []
        except (RuntimeError, ValueError, TypeError):  # tensors and arrays have no one answer: look more closely
            pass
        pairs = zip(self._modules, self._types, strict=True)
        found = [(id(m), "__class__") for m, kind in pairs if type(m) is not kind]
        values = iter(self._values)
        for content, keys in zip(self._parts, self._keys, strict=True):
            before = {key: next(values) for key in keys}
            for key in {**before, **content}:
                if key not in before or key not in content or not alike([before[key]], [content[key]]):
                    change = (id(content), str(key))
                    if change not in self._ignored:
                        found.append(change)
        return found


def _dictionaries(model: Callable[..., Any], names: tuple[str, ...]) -> Iterator[dict[Any, Any]]:
    for module in all_modules(model):
        content = vars(module)
        for name in names:
            yield content[name] if name else content


def _classes(model: Callable[..., Any]) -> Iterator[Any]:
    """The attributes of the user's own classes."""
    seen = {c for m in all_modules(model) for c in type(m).__mro__}
    yield from (vars(c) for c in seen if c.__module__.partition(".")[0] not in {"torch", "builtins", "abc", "typing"})


def held(function: Any) -> list[Any]:
    """A function by what it is made of, so that one written anew in a loop is the same: code, closure, defaults."""
    plain = getattr(function, "__func__", function)
    if not isinstance(plain, FunctionType):
        return [type(function), function]
    return [plain.__code__, *own_values(plain).values()]


def alike(a: list[Any], b: list[Any]) -> bool:
    """The same objects, or equal ones."""
    try:
        return a == b  # the same objects are equal without a look at their values
    except (RuntimeError, ValueError, TypeError):  # tensors and arrays have no one answer
        return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def signature(arguments: Call) -> tuple[Any, list[tuple[int, ...] | None]]:
    """What a proof depends on of a call besides the model: kinds of all arguments, and shapes of the tensors."""
    kinds: list[Any] = [arguments.slots, *arguments.keyword]
    shapes: list[tuple[int, ...] | None] = []
    values = (*arguments.positional, *arguments.keyword.values()) if arguments.keyword else arguments.positional
    if len(values) > 1 or not isinstance(values[0], Tensor):
        values = tuple(pytree.tree_leaves(values))
    for value in values:
        if isinstance(value, Tensor):
            kinds.append((value.dtype, value.device))
            shapes.append(tuple(value.shape))
        else:
            kinds.append((type(value), repr(value)))
            shapes.append(None)
    return tuple(kinds), shapes


def surroundings() -> tuple[Any, ...]:
    """Switches of the process that change what a model computes."""
    autocast = torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")
    formats = torch.get_autocast_dtype("cpu") if any(autocast) else None
    return len(REVISIONS), autocast, formats, torch.get_default_dtype()


def _covers(entry: Remembered, key: Any, shapes: list[tuple[int, ...] | None]) -> bool:
    sizes = entry.proof.sizes
    return entry.key == key and sizes is not None and sizes.cover(shapes)


def _located(model: Any, consulted: dict[str, Tensor]) -> list[tuple[dict[str, Any] | None, str, Tensor, Tensor]]:
    """Where the numbers that decided are kept, so that one that is replaced is noticed, and copies of them."""
    homes: dict[int, tuple[dict[str, Any], str]] = {}
    for content in _dictionaries(model, ("_parameters", "_buffers")):
        homes.update({id(value): (content, name) for name, value in content.items() if isinstance(value, Tensor)})
    found = []
    for name, tensor in consulted.items():
        owner, key = homes.get(id(tensor), (None, name))
        found.append((owner, key, tensor, tensor.detach().clone().requires_grad_(tensor.requires_grad)))
    return found


@dataclass
class Remembered:
    """One proof, and the state of affairs in which it was made."""

    proof: Proof
    model: Any
    key: Any
    snapshot: Snapshot
    numbers: list[tuple[dict[str, Any] | None, str, Tensor, Tensor]]
    surroundings: Any

    def holds(self) -> bool:
        """Whether the numbers that decided are what they were, and trained if they were."""
        for owner, name, tensor, before in self.numbers:
            now = tensor if owner is None else owner.get(name)
            if now is None or now.shape != before.shape or now.requires_grad != before.requires_grad:
                return False
            if not torch.equal(now, before):
                return False
        return True


@dataclass
class Memory:
    """The proofs of one method, by what is attributed; never more than a handful."""

    entries: list[Remembered] = field(default_factory=list)
    by_shape: dict[Any, Remembered] = field(default_factory=dict)
    #: Attributes that the model changes as it runs.
    ignored: set[tuple[int, str]] = field(default_factory=set)
    _suspects: set[tuple[int, str]] = field(default_factory=set)
    #: For the schedule of checks.
    calls: int = 0
    started: float = 0.0
    busy: float = 0.0
    spent: float = 0.0

    def find(self, model: Any, key: Any, shapes: list[tuple[int, ...] | None]) -> Remembered | None:
        """A proof that covers this call, None if there is none or what it depends on has changed."""
        found = self.by_shape.get((id(model), key, tuple(shapes)))
        if found is None:
            found = next((e for e in self.entries if e.model is model and _covers(e, key, shapes)), None)
            if found is None:
                return None
            if len(self.by_shape) >= _SHAPES:
                self.by_shape.pop(next(iter(self.by_shape)))
            self.by_shape[id(model), key, tuple(shapes)] = found
        changed = found.snapshot.changes()
        if changed:
            # What changes again and again is the model's own doing, a counter or what it kept of its last call.
            self.ignored.update(set(changed) & self._suspects)
            self._suspects.update(changed)
            self.forget()
            return None
        if not found.holds() or found.surroundings != surroundings():
            self.forget()
            return None
        return found

    def keep(self, proof: Proof, model: Any, key: Any, shapes: list[tuple[int, ...] | None]) -> Remembered:
        entry = Remembered(
            proof, model, key, Snapshot(model, self.ignored), _located(model, proof.consulted), surroundings()
        )
        self.entries.append(entry)
        if len(self.entries) > _PROOFS:
            old = self.entries.pop(0)
            self.by_shape = {k: e for k, e in self.by_shape.items() if e is not old}
        self.by_shape[id(model), key, tuple(shapes)] = entry
        return entry

    def forget(self) -> None:
        """Prove anew on the next call."""
        self.entries.clear()
        self.by_shape.clear()

    def due(self, *, together: bool) -> bool:
        """Whether this call is checked along the path; processes that run `together` decide by the count alone.

        The first, second, fourth, eighth … call is, whatever it costs.
        """
        self.calls += 1
        now = time.perf_counter()
        if self.calls == 1:
            self.started = now
        if together or self.calls & (self.calls - 1) == 0:
            return self.calls & (self.calls - 1) == 0
        return self.spent < _SHARE * self.busy + _IDLE * (now - self.started)
