"""One progress bar, on standard error."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from axiograd._extras import optional

#: advance(n, total=..., done=..., doing=..., **fields): what is not given stays as it is.
Update = Callable[..., None]


@contextmanager
def progress_bar(
    what: str, *, total: float | None = None, shown: bool | None = None, extra: str = "cli", counted: bool = True
) -> Iterator[Update]:
    """A bar with what is being done, how much of it, the time left, and a note; `shown=None` is on a terminal alone.

    The function that it gives takes `advance`, or `completed`, and `total`, `description` and `note`.

    >>> with progress_bar("epochs", total=3, shown=False) as update:
    ...     update(advance=1, note="loss 0.5")
    """
    if not (sys.stderr.isatty() if shown is None else shown):
        yield lambda **_: None
        return
    progress = optional("rich.progress", extra, "a progress bar")
    console = optional("rich.console", extra, "a progress bar")
    count: Any = progress.MofNCompleteColumn() if counted else progress.TextColumn("{task.percentage:>3.0f} %")
    columns = (progress.TextColumn("{task.description}", markup=False), progress.BarColumn(), count)
    note = progress.TextColumn("{task.fields[note]}", markup=False)
    # A window of an hour: pieces may take minutes.
    with progress.Progress(
        *columns, progress.TimeRemainingColumn(), note, console=console.Console(stderr=True), speed_estimate_period=3600
    ) as drawn:
        task = drawn.add_task(what, total=total, note="")
        yield lambda **changes: drawn.update(task, **changes)
