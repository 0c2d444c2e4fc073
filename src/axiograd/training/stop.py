"""SIGTERM means: finish this step, save, and go."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class StopSignal:
    """While it is open, SIGTERM is remembered instead of killing the process.

    >>> import os
    >>> with StopSignal() as stop:
    ...     os.kill(os.getpid(), signal.SIGTERM)
    ...     stop.requested
    True
    """

    #: what a shell reports for a process that SIGTERM ended
    EXIT_CODE = 128 + signal.SIGTERM

    def __init__(self) -> None:
        self.requested = False
        self._before: Any = None

    def __enter__(self) -> Self:
        # Python delivers signals to the main thread alone, and lets only it set handlers
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._remember)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _remember(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the handler's signature
        self.requested = True
