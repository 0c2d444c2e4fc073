"""The modules behind a callable, and a pass through them that leaves their buffers as they were."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from torch import Tensor, nn

from axiograd._functions import global_values, own_values
from axiograd.homogeneity.traffic import BUFFERS


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


def _with_buffers(modules: list[nn.Module]) -> list[nn.Module]:
    """All modules that have buffers, each once; `modules()` makes up names that nobody needs here."""
    waiting, seen, found = list(modules), set(), []
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        if module._buffers:  # noqa: SLF001  # setattr would run a module's own __setattr__
            found.append(module)
        waiting += [child for child in module._modules.values() if child is not None]  # noqa: SLF001
    return found


@contextmanager
def preserved_buffers(model: Callable[..., Any]) -> Iterator[None]:
    """What a pass writes into buffers (BatchNorm's statistics) it writes into copies."""
    owners = _with_buffers(modules_behind(model))
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
def own_buffers(model: Callable[..., Any]) -> Iterator[None]:
    """What a pass writes into buffers it writes into the model's own, not into the copies of another thread's look."""
    with BUFFERS.shared(_with_buffers(modules_behind(model))):
        yield
