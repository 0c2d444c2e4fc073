"""Threads: while one traces a model, no other runs one through us; whoever changes a module's buffers does so alone."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn


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
