"""Threads: while one traces a model, no other runs one through us; whoever changes a module's buffers does so alone."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from weakref import WeakKeyDictionary

from torch import nn


class Traffic:
    """Any number of threads may run models, or one may trace: the export swaps parameters for fake ones meanwhile."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: dict[int, int] = {}
        self._tracer: int | None = None
        self._depth = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        me = threading.get_ident()
        with self._changed:
            if self._tracer is not None:
                self._changed.wait_for(lambda: self._tracer in {None, me})
            self._running[me] = self._running.get(me, 0) + 1
        try:
            yield
        finally:
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


TRAFFIC = Traffic()

_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_ADDING = threading.Lock()


@contextmanager
def alone_with(modules: Iterable[nn.Module]) -> Iterator[None]:
    """One thread at a time, in an order that is the same for all."""
    with ExitStack() as stack:
        # Whoever traces must not wait for one who waits for the end of the trace.
        for module in () if TRAFFIC.is_mine else sorted(modules, key=id):
            with _ADDING:
                lock = _LOCKS.setdefault(module, threading.RLock())
            stack.enter_context(lock)
        yield
