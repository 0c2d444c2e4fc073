"""A certificate on the terminal: the verdict, the facts, and every violation with what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from torch import Tensor

    from axiograd.homogeneity import Certificate, Violation
    from axiograd.loading import Loaded

#: Names of modules in a line; of more, the first ones.
_NAMES = 3


def certify_on_random(loaded: Loaded, shape: str | None) -> tuple[Tensor, Certificate]:
    """Random inputs of the given shape, or of one that is known or guessed, and the certificate on them."""
    from axiograd.errors import InputError
    from axiograd.homogeneity import certify
    from axiograd.loading.shapes import example_input, read_shape

    x = example_input(loaded.model, read_shape(shape) or loaded.shape)
    try:
        return x, certify(loaded.model, x)
    except InputError as error:
        if shape is not None or loaded.recipe is not None:
            raise
        raise InputError(f"{error} That shape is a guess: say --shape, for example 3,32,32.") from error


def show_certificate(
    console: Console, certificate: Certificate, *, most: int | None = None, every: bool = False
) -> None:
    """Print a certificate; violations of one kind are one entry, or with ``every`` one each, and at most ``most``."""
    from axiograd.homogeneity.certificate import grouped, summary

    verdict, *facts = summary(certificate)
    style = "bold green" if certificate.ok else "bold red"
    console.print(Text(f"{'✓' if certificate.ok else '✗'} {verdict}", style=style))
    for line in facts:
        console.print(Text(line, style="dim"), soft_wrap=True)
    groups = [[one] for one in certificate.violations] if every else grouped(certificate.violations)
    shown = groups[:most]
    if shown:
        table = Table.grid(padding=(0, 1))
        table.add_column(justify="right", style="dim", no_wrap=True)
        table.add_column()
        for number, group in enumerate(shown, start=1):
            table.add_row(f"{number}.", _describe(group))
        console.print()
        console.print(table)
    if len(shown) < len(groups):
        console.print(Text(f"   … and {sum(map(len, groups[most:]))} more", style="dim"))


def _describe(group: Sequence[Violation]) -> Text:
    violation = group[0]
    text = Text()
    names = [one.module or "(the model)" for one in group]
    text.append(", ".join(names[:_NAMES]), style="bold")
    if len(names) > _NAMES:
        text.append(f" and {len(names) - _NAMES} more")
    text.append(f"  {violation.op}", style="cyan")
    if violation.source:
        text.append(f"  {violation.source}", style="dim")
    if violation.code:
        text.append(f"\n> {violation.code}", style="dim italic")
    text.append(f"\n{violation.reason}")
    if len(group) > 1:
        text.append(f" {len(group)} alike; `axiograd check --all` lists each.", style="dim")
    text.append("\nfix: ", style="green")
    text.append(violation.fix)
    return text
