"""A certificate on the terminal: the verdict, the facts, and every violation with what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from axiograd.homogeneity import Certificate, Violation


def show_certificate(console: Console, certificate: Certificate, *, most: int | None = None) -> None:
    """Print a certificate; of many violations only the first ``most``."""
    from axiograd.homogeneity.certificate_text import summary

    verdict, *facts = summary(certificate)
    style = "bold green" if certificate.ok else "bold red"
    console.print(Text(f"{'✓' if certificate.ok else '✗'} {verdict}", style=style))
    for line in facts:
        console.print(Text(line, style="dim"), soft_wrap=True)
    shown = certificate.violations[:most]
    if shown:
        table = Table.grid(padding=(0, 1))
        table.add_column(justify="right", style="dim", no_wrap=True)
        table.add_column()
        for number, violation in enumerate(shown, start=1):
            table.add_row(f"{number}.", _describe(violation))
        console.print()
        console.print(table)
    if len(shown) < len(certificate.violations):
        console.print(Text(f"   … and {len(certificate.violations) - len(shown)} more", style="dim"))


def _describe(violation: Violation) -> Text:
    text = Text()
    text.append(violation.module or "(the model)", style="bold")
    text.append(f"  {violation.op}", style="cyan")
    if violation.source:
        text.append(f"  {violation.source}", style="dim")
    if violation.code:
        text.append(f"\n> {violation.code}", style="dim italic")
    text.append(f"\n{violation.reason}")
    text.append("\nfix: ", style="green")
    text.append(violation.fix)
    return text
