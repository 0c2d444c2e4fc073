"""Subcommands, exit codes and errors of the command.

Exit codes: 0 done, 1 the answer is no (or the work failed), 2 wrong use, 3 data missing.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from axiograd._version import __version__
from axiograd.cli.check import check
from axiograd.cli.demo import demo
from axiograd.cli.reproduce import reproduce
from axiograd.cli.train import train
from axiograd.errors import AxiogradError, ConfigurationError, DataMissingError

app = typer.Typer(
    name="axiograd",
    help="Exact Integrated Gradients in one backward pass, differentiable, so that you can train with them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, check, train, reproduce):
    app.command()(command)

_debug = False


def _print_version(value: bool) -> None:
    if value:
        print(f"axiograd {__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")] = False,
    version: Annotated[  # noqa: ARG001  # handled by its callback
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options that come before the subcommand."""
    global _debug  # noqa: PLW0603  # one process runs one command
    _debug = debug


def exit_code(error: BaseException) -> int:
    """Data missing is 3, wrong use is 2, everything else is 1."""
    if isinstance(error, DataMissingError):
        return 3
    return 2 if isinstance(error, ConfigurationError) else 1


def run() -> None:
    """Run the command; trouble of a known kind becomes one sentence and an exit code."""
    console = Console(stderr=True)
    try:
        app()
    except KeyboardInterrupt:
        console.print("Interrupted.")
        sys.exit(130)
    except (AxiogradError, OSError) as error:
        if _debug:
            raise
        console.print(f"[bold red]Error:[/] {type(error).__name__}: ", end="")
        console.print(str(error), markup=False, highlight=False)
        sys.exit(exit_code(error))
