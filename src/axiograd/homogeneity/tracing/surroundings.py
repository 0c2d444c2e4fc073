"""The modules behind a callable, and a pass through them that leaves their buffers as they were."""

from __future__ import annotations

import functools
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor, nn

from axiograd._functions import global_values, own_values
from axiograd.homogeneity.certificate import Violation
from axiograd.homogeneity.tracing.threads import BUFFERS


def captured_modules(function: Any) -> Iterator[tuple[str, nn.Module]]:
    """Modules that a callable reaches by closure, default or global, as its argument or as the owner of a method."""
    if isinstance(function, functools.partial):
        yield from captured_modules(function.func)
        values = [("argument", v) for v in (*function.args, *function.keywords.values())]
    else:
        owner = getattr(function, "__self__", None)
        values = [("model", owner)] if owner is not None else []
        plain = getattr(function, "__func__", function)
        if isinstance(plain, FunctionType):
            values += [*own_values(plain).items(), *global_values(plain).items()]
    for name, value in values:
        if isinstance(value, nn.Module):
            yield name, value


def module_of(model: Callable[..., Any]) -> nn.Module | None:
    """The module behind a callable: itself, or the object whose method it is."""
    owner = model if isinstance(model, nn.Module) else getattr(model, "__self__", None)
    return owner if isinstance(owner, nn.Module) else None


def modules_behind(model: Callable[..., Any]) -> list[nn.Module]:
    """All modules that a callable may run: its own, or those that a function closes over."""
    module = module_of(model)
    return [module] if module is not None else [captured for _, captured in captured_modules(model)]


@contextmanager
def in_mode(model: Callable[..., Any], *, training: bool | None = None) -> Iterator[None]:
    """All modules behind a model in one mode, by default each in its own; afterwards each has its own again."""
    roots = modules_behind(model)
    modes = [(module, module.training) for root in roots for module in root.modules()]
    try:
        for root in roots:
            if training is not None and any(module.training != training for module in root.modules()):
                root.train(training)
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def with_buffers(model: Callable[..., Any]) -> list[nn.Module]:
    """All modules behind a model that have buffers, each once; `modules()` makes up names that nobody needs here."""
    waiting, seen, found = modules_behind(model), set(), []
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        if module._buffers:  # noqa: SLF001  # setattr would run a module's own __setattr__
            found.append(module)
        if module._modules:  # noqa: SLF001
            waiting += [child for child in module._modules.values() if child is not None]  # noqa: SLF001
    return found


@contextmanager
def preserved_buffers(owners: Sequence[nn.Module]) -> Iterator[None]:
    """What a pass writes into buffers (BatchNorm's statistics) of these modules it writes into copies."""
    if not owners:
        yield
        return
    with BUFFERS.alone(owners):
        originals = [
            (owner, name, buffer)
            for owner in owners
            for name, buffer in owner._buffers.items()  # noqa: SLF001
            if buffer is not None
        ]
        copies: dict[int, Tensor] = {}
        try:
            for owner, name, buffer in originals:
                owner._buffers[name] = copies.setdefault(id(buffer), buffer.clone())  # noqa: SLF001
            yield
        finally:
            for owner, name, buffer in originals:
                owner._buffers[name] = buffer  # noqa: SLF001


@contextmanager
def own_buffers(owners: Sequence[nn.Module]) -> Iterator[None]:
    """What a pass writes into buffers it writes into the modules' own, not into copies of another thread's look."""
    with BUFFERS.shared(owners):
        yield


_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
#: A list in an object in a closure: what a hook fills is near.
_DEEPEST = 3


@contextmanager
def attributes_restored(model: Callable[..., Any]) -> Iterator[None]:
    """Puts every module's attributes and buffers, and the containers that hooks fill, back as they were.

    >>> kept = []
    >>> model = nn.ReLU()
    >>> _ = model.register_forward_hook(lambda module, args, output: kept.append(output))
    >>> with attributes_restored(model):
    ...     _ = model(__import__("torch").ones(1))
    >>> kept
    []
    """
    modules = [m for root in modules_behind(model) for m in root.modules()]
    saved: list[tuple[Any, Any]] = [(vars(m), dict(vars(m))) for m in modules]
    saved += [(m._buffers, dict(m._buffers)) for m in modules]  # noqa: SLF001 - the only way to the dict itself
    filled: dict[int, tuple[Any, Any]] = {}
    for hook in (h for m in modules for name in _HOOKS for h in getattr(m, name).values()):
        _containers(hook, filled, 0)
    if isinstance(model, FunctionType):
        _containers(model, filled, 0)
    saved += [pair for pair in filled.values() if all(pair[0] is not live for live, _ in saved)]
    try:
        yield
    finally:
        for live, before in saved:
            if not _same(live, before):
                live.clear()
                (live.update if isinstance(live, dict | set) else live.extend)(before)


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


def _same(live: Any, before: Any) -> bool:
    if len(live) != len(before):
        return False
    if isinstance(live, dict):
        return live.keys() == before.keys() and all(live[key] is before[key] for key in before)
    return (isinstance(live, set) and live == before) or all(a is b for a, b in zip(live, before, strict=True))


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
        reason="The model draws from a torch.Generator of its own, whose draws are others at each call.",
        fix="Draw from torch's default generator, whose draws are held fixed, or pass what was drawn as an argument.",
        kind="random",
    )


def randomness(generator: str) -> Violation:
    """What the certificate says about a draw."""
    return Violation(
        module="",
        op=generator,
        source="",
        reason=f"The model draws from {generator} as it runs: another call may run other operators than those seen.",
        fix="Draw with torch, whose draws the proof holds fixed, or pass the choice as an argument.",
        kind="random",
    )
