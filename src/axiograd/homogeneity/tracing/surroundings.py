"""What a pass may leave behind: attributes of modules, containers that hooks fill, and draws."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor, nn

from axiograd._functions import global_values, own_values
from axiograd._state import all_modules
from axiograd.homogeneity.certificate import Violation

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
#: A list in an object in a closure: what a hook fills is near.
_DEEPEST = 3


@contextmanager
def attributes_restored(model: Callable[..., Any], *, registered: bool = False) -> Iterator[None]:
    """Puts every module's attributes and buffers, and the containers that hooks fill, back as they were.

    With `registered`, also its parameters, hooks and other dictionaries, which no other thread may change meanwhile.

    >>> kept = []
    >>> model = nn.ReLU()
    >>> _ = model.register_forward_hook(lambda module, args, output: kept.append(output))
    >>> with attributes_restored(model):
    ...     _ = model(__import__("torch").ones(1))
    >>> kept
    []
    """
    modules = all_modules(model)
    saved: list[tuple[Any, Any]] = [(vars(m), dict(vars(m))) for m in modules]
    # Handles of hooks refer to the dictionaries themselves, so those are refilled, not replaced.
    dictionaries = [d for m in modules for d in vars(m).values() if isinstance(d, dict)]
    buffers = [m._buffers for m in modules]  # noqa: SLF001 - the only way to the dict itself
    saved += [(held, held.copy()) for held in (dictionaries if registered else buffers)]
    filled: dict[int, tuple[Any, Any]] = {}
    for hook in (h for m in modules for name in _HOOKS for h in getattr(m, name).values()):
        _containers(hook, filled, 0)
    if isinstance(model, FunctionType):
        _containers(model, filled, 0)
    saved += [pair for pair in filled.values() if all(pair[0] is not held for held, _ in saved)]
    try:
        yield
    finally:
        for held, before in saved:
            if not _same(held, before):
                held.clear()
                (held.update if isinstance(held, dict | set) else held.extend)(before)


def _containers(value: Any, found: dict[int, tuple[Any, Any]], depth: int) -> None:
    """Lists, dicts and sets that a function reaches by closure, default or global, or by the object it belongs to."""
    if depth > _DEEPEST or id(value) in found or isinstance(value, Tensor | nn.Module | ModuleType | type):
        return
    if isinstance(value, list | dict | set | deque):
        found[id(value)] = (value, value.copy())
        inner: Iterable[Any] = value.values() if isinstance(value, dict) else value
        for item in list(inner)[:100]:
            _containers(item, found, depth + 1)
        return
    owner = getattr(value, "__self__", None)
    function = getattr(value, "__func__", value)
    reached: list[Any] = []
    if isinstance(function, FunctionType):
        reached += own_values(function).values()
        reached += [v for v in global_values(function).values() if isinstance(v, list | dict | set | deque)]
    reached += [*getattr(value, "args", ()), getattr(value, "func", None), owner] if callable(value) else []
    if not isinstance(value, FunctionType) and hasattr(value, "__dict__"):
        reached.append(vars(value))
    for item in reached:
        if item is not None:
            _containers(item, found, depth + 1)


def _same(now: Any, before: Any) -> bool:
    if len(now) != len(before):
        return False
    if isinstance(now, dict):
        return now.keys() == before.keys() and all(now[key] is before[key] for key in before)
    return (isinstance(now, set) and now == before) or all(a is b for a, b in zip(now, before, strict=True))


@contextmanager
def draws_noticed() -> Iterator[list[str]]:
    """The generators that were drawn from, filled in at the end; both are put back as they were.

    >>> with draws_noticed() as drawn:
    ...     _ = random.random()
    >>> drawn
    ['random']
    """
    drawn: list[str] = []
    python: Any = random.getstate()
    numpy: Any = np.random.get_state(legacy=False)  # noqa: NPY002 - the one that code without a generator draws from
    try:
        yield drawn
    finally:
        if random.getstate() != python:
            drawn.append("random")
            random.setstate(python)
        if not _equal(np.random.get_state(legacy=False), numpy):  # noqa: NPY002
            drawn.append("numpy.random")
            np.random.set_state(numpy)  # noqa: NPY002


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return bool(np.array_equal(a, b))


def own_generator() -> Violation:
    """What the certificate says about a torch.Generator that a model keeps."""
    return Violation(
        module="",
        op="torch.Generator",
        source="",
        reason="The model draws from a torch.Generator of its own, whose draws differ from call to call.",
        fix="Draw from torch's default generator, whose draws are held fixed, or pass what was drawn as an argument.",
        kind="random",
    )


def randomness(generator: str) -> Violation:
    """What the certificate says about a draw."""
    return Violation(
        module="",
        op=generator,
        source="",
        reason=f"The model draws from {generator} as it runs: another call may run operators that were not seen.",
        fix="Draw with torch, whose draws the proof holds fixed, or pass the choice as an argument.",
        kind="random",
    )
