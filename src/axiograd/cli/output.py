"""Where the command speaks: its answer on stdout, everything else on stderr."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from axiograd._names import visible

#: Columns of text that goes into a file or a pipe.
PIPED = 120


class Output:
    """The two voices of one command, and the JSON that replaces the first one."""

    def __init__(self, stdout: TextIO, *, as_json: bool) -> None:
        self._stdout, self._as_json = stdout, as_json
        self.notes = console(sys.stderr)
        #: For people: stdout, or stderr where stdout is for machines.
        self.console = self.notes if as_json else console(stdout)

    def answer(self, content: Any) -> None:
        """Print the answer for machines, if that was asked for."""
        if self._as_json:
            text = content if isinstance(content, str) else as_json(content)
            print(text, file=self._stdout, flush=True)

    def note(self, sentence: str) -> None:
        """Say something beside the answer."""
        self.notes.print(visible(sentence), markup=False, highlight=False, soft_wrap=True)

    def warn(self, word: str, sentence: str) -> None:
        """Say something that must not be overlooked, in the answer for people itself."""
        self.console.print(f"[bold yellow]{word}:[/] ", end="")
        self.say(sentence)

    def say(self, sentence: str, style: str | None = None) -> None:
        """A sentence of the answer for people; what users named is not markup."""
        self.console.print(visible(sentence), style=style, markup=False, highlight=False, soft_wrap=True)

    def progress(self) -> Progress:
        """A bar for long work, on stderr, gone when it is done."""
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
        times = (TimeElapsedColumn(), TimeRemainingColumn())
        return Progress(*columns, *times, console=self.notes, transient=True, disable=not self.notes.is_terminal)


@contextmanager
def speaking(*, as_json: bool) -> Iterator[Output]:
    """With JSON wanted, whatever prints to stdout while the work is done goes to stderr: users' models print too."""
    stdout = sys.stdout
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        yield Output(stdout, as_json=as_json)


def console(file: TextIO) -> Console:
    """As wide as the terminal, or wide enough for a file."""
    terminal = file.isatty()
    return Console(file=file, width=None if terminal or "COLUMNS" in os.environ else PIPED)


def as_json(content: Any) -> str:
    """JSON that every reader accepts: NaN and infinities are null.

    >>> print(as_json({"a": float("nan"), "b": (1, 2)}))
    {
      "a": null,
      "b": [
        1,
        2
      ]
    }
    """
    return json.dumps(_plain(content), indent=2, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


def plain_table(*columns: str, title: str | None = None, right: tuple[str, ...] = ()) -> Table:
    """A table without a box, the columns named in `right` flush right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def words(value: Any) -> Any:
    """A cell whose text is not markup."""
    from rich.text import Text

    return value if isinstance(value, Text) else Text(visible(str(value)))
