"""Subcommands, exit codes and errors of the command.

Exit codes: 0 done, 1 the answer is no, 2 a usage error (or a model that raises), 3 a file is missing, damaged or
cannot be written, 130 interrupted.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from axiograd._names import visible
from axiograd._version import __version__
from axiograd.cli.attribute import attribute
from axiograd.cli.check import check
from axiograd.cli.compare import compare
from axiograd.cli.convert import convert
from axiograd.cli.demo import demo
from axiograd.cli.explain import explain
from axiograd.cli.export import export
from axiograd.cli.list import list_all
from axiograd.cli.studio import studio
from axiograd.cli.train import train
from axiograd.errors import AxiogradError, ConversionError, DataMissingError, NotHomogeneousError, StorageError

app = typer.Typer(
    name="axiograd",
    help="Exact Integrated Gradients in one backward pass, differentiable, so that you can train with them.\n\n"
    "New here? `axiograd demo` tells the story in about three minutes, without downloads.",
    epilog="Exit codes: 0 done · 1 the answer is no · 2 usage error · 3 a file is missing, damaged or not writable.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
SUBCOMMANDS = (demo, check, convert, explain, train, studio, export, attribute, compare, list_all)
for command in SUBCOMMANDS:
    app.command(command.__name__.removesuffix("_all"))(command)


def _print_version(value: bool) -> None:
    if value:
        print(f"axiograd {__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    debug: Annotated[  # read by `run`, wherever it stands
        bool, typer.Option("--debug", help="Show the whole traceback of an error.")
    ] = False,
    version: Annotated[  # handled by its callback
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of every subcommand."""


def exit_code(error: BaseException) -> int:
    """What a script is told: 1 is an answer, 2 and 3 say that there is none."""
    if isinstance(error, NotHomogeneousError | ConversionError):
        return 1
    return 3 if isinstance(error, DataMissingError | StorageError | OSError) else 2


def sentence(error: BaseException) -> str:
    """An error in words; what axiograd did not foresee gets its type and the way to the traceback."""
    if isinstance(error, AxiogradError):
        return str(error)
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}."
    from axiograd._user_code import line_of

    lines = str(error).strip().splitlines() or ["no message"]
    place = f"{line}; " if (line := line_of(error)) else ""
    return f"{type(error).__name__}: {lines[0]} ({place}--debug shows the traceback)"


def _has_spoken(error: BaseException | None) -> bool:
    """Whether what was interrupted has itself announced what it kept, as training does."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt) and error.args:
            return True
        error = error.__cause__ or error.__context__
    return False


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command; errors become one line and an exit code, with ``--debug`` a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    console = Console(stderr=True)
    announced = False
    try:
        if threading.current_thread() is threading.main_thread():
            # A polite kill unwinds like Ctrl-C, so that temporary files are removed.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        app([each for each in given if each != "--debug"], prog_name="axiograd")
    except KeyboardInterrupt as error:
        code, announced = 130, _has_spoken(error)
    except Exception as error:
        if debug:
            raise
        console.print("[bold red]Error:[/] ", end="")
        console.print(visible(sentence(error)), markup=False, highlight=False, soft_wrap=True)
        code = exit_code(error)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        announced = _has_spoken(leaving)
    if code == 130 and not announced:  # noqa: PLR2004  # what shells use for Ctrl-C
        console.print("Interrupted; what was being written was not kept.")
    sys.exit(code)
