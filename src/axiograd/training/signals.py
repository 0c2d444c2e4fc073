"""SIGTERM and Ctrl-C mean: finish this step, save, and go."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class StopSignal:
    """While it is open, SIGTERM, and with `interrupts` Ctrl-C, is remembered instead of ending the process.

    A second Ctrl-C ends it at once.

    >>> import os
    >>> with StopSignal() as stop:
    ...     os.kill(os.getpid(), signal.SIGTERM)
    ...     stop.requested
    <Signals.SIGTERM: 15>
    """

    def __init__(self, *, interrupts: bool = True) -> None:
        self.requested: signal.Signals | None = None
        self._numbers = (signal.SIGTERM, signal.SIGINT) if interrupts else (signal.SIGTERM,)
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        # Python delivers signals to the main thread alone, and lets only it set handlers
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as in the background of a shell
                    self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _remember(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the handler's signature
        if self.requested is signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = signal.Signals(number)


def leave(stop: signal.Signals, message: str) -> None:
    """End as the signal would have: what a shell reports for it, or as Ctrl-C does."""
    if stop is signal.SIGINT:
        raise KeyboardInterrupt(message)
    raise SystemExit(128 + stop)
