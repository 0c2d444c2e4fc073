"""What it takes to run a model: the modules behind it, their modes and buffers, and threads that take turns."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from axiograd._functions import global_values, own_values


def compiled_from(model: Any) -> nn.Module | None:
    """The module that `torch.compile` wrapped, None for anything else, whatever its attributes are called."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    return model._orig_mod if frames is not None and isinstance(model, frames.OptimizedModule) else None  # noqa: SLF001


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


def all_modules(model: Callable[..., Any]) -> list[nn.Module]:
    """Those behind a model, and all that they hold."""
    return [module for root in modules_behind(model) for module in root.modules()]


def all_tensors(model: Callable[..., Any]) -> list[Tensor]:
    """Parameters and buffers of the modules behind a model."""
    return [tensor for root in modules_behind(model) for tensor in (*root.parameters(), *root.buffers())]


@contextmanager
def running_eagerly() -> Iterator[None]:
    """Compiled modules run as they are written: compiled code has no second derivative, and sees no later hook."""
    with torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext():
        yield


@contextmanager
def in_mode(model: Callable[..., Any], *, training: bool | None = None) -> Iterator[None]:
    """All modules behind a model in one mode, by default each in its own; afterwards each has its own again."""
    roots = modules_behind(model)
    modes = [(module, module.training) for module in all_modules(model)]
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


class Traffic:
    """Any number of threads may run models, or one may trace: the export swaps parameters for fake ones meanwhile."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: dict[int, int] = {}
        self._tracer: int | None = None
        self._depth = 0

    def enter(self) -> None:
        """Run a model, once nobody traces; to be followed by `leave`."""
        me = threading.get_ident()
        with self._changed:
            if self._tracer is not None:
                self._changed.wait_for(lambda: self._tracer in {None, me})
            self._running[me] = self._running.get(me, 0) + 1

    def leave(self) -> None:
        me = threading.get_ident()
        with self._changed:
            self._running[me] -= 1
            if not self._running[me]:
                del self._running[me]
                self._changed.notify_all()

    @property
    def is_mine(self) -> bool:
        """Whether this thread traces, and so is alone anyway."""
        return self._tracer == threading.get_ident()

    @contextmanager
    def tracing(self) -> Iterator[None]:
        me = threading.get_ident()
        with self._changed:
            # Between two passes of its own a thread may trace; else two that want to would wait for each other.
            mine = self._running.pop(me, 0)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._tracer == me or (self._tracer is None and not self._running))
            self._tracer = me
            self._depth += 1
        try:
            yield
        finally:
            with self._changed:
                self._depth -= 1
                if not self._depth:
                    self._tracer = None
                if mine:
                    self._running[me] = mine
                self._changed.notify_all()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Out of the way of tracers, while a thread that runs models waits for something else."""
        me = threading.get_ident()
        with self._changed:
            mine = self._running.pop(me, 0)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._changed.wait_for(lambda: self._tracer in {None, me})
                if mine:
                    self._running[me] = mine


class Buffers:
    """Any number of threads may run a module, or one may swap its buffers for copies.

    A thread takes all modules at once, and while it waits it holds nothing, so that no two wait for each other.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: Identity of a module → how often each thread runs it, or has swapped its buffers.
        self._running: dict[int, dict[int, int]] = {}
        self._swapped: dict[int, dict[int, int]] = {}

    @contextmanager
    def shared(self, modules: Iterable[nn.Module]) -> Iterator[None]:
        """While the modules are run, and write into their own buffers."""
        with self._held([id(m) for m in modules], self._running, (self._swapped,)):
            yield

    @contextmanager
    def alone(self, modules: Iterable[nn.Module]) -> Iterator[None]:
        """While the buffers are swapped for copies."""
        with self._held([id(m) for m in modules], self._swapped, (self._running, self._swapped)):
            yield

    @contextmanager
    def _held(self, keys: list[int], table: _Table, against: tuple[_Table, ...]) -> Iterator[None]:
        me = threading.get_ident()
        # Whoever traces must not wait for one who waits for the end of the trace.
        if TRAFFIC.is_mine or not keys:
            yield
            return
        if not self._taken(keys, table, against, me, wait=False):
            with TRAFFIC.aside():
                self._taken(keys, table, against, me, wait=True)
        try:
            yield
        finally:
            with self._changed:
                for key in keys:
                    threads = table[key]
                    threads[me] -= 1
                    if not threads[me]:
                        del threads[me]
                    if not threads:
                        del table[key]
                self._changed.notify_all()

    def _taken(self, keys: list[int], table: _Table, against: tuple[_Table, ...], me: int, *, wait: bool) -> bool:
        def free() -> bool:
            return not any(other != me for held in against for key in keys for other in held.get(key, ()))

        with self._changed:
            if not free():
                if not wait:
                    return False
                # Two that run a module and want to swap its buffers would wait for each other.
                given_up = {key: t.pop(me) for key, t in self._running.items() if me in t}
                self._changed.notify_all()
                self._changed.wait_for(free)
                for key, count in given_up.items():
                    self._running.setdefault(key, {})[me] = count
            for key in keys:
                threads = table.setdefault(key, {})
                threads[me] = threads.get(me, 0) + 1
            return True


_Table = dict[int, dict[int, int]]
TRAFFIC = Traffic()
BUFFERS = Buffers()
