"""`axiograd datasets`: what is on this machine, what is missing, and where to get it."""

from __future__ import annotations

from dataclasses import asdict

from axiograd.cli import options
from axiograd.cli.output import plain_table, speaking, words


def datasets(*, json: options.Json = False) -> None:
    """List the data sets: which are here, and for the others where to get them and where to put them.

    They are looked for in the folder that the environment variable AXIOGRAD_DATA names, and in the cache.
    Nothing is downloaded.

    `AXIOGRAD_DATA=~/data axiograd datasets`
    """
    with speaking(as_json=json) as output:
        from axiograd.datasets import catalogue

        entries = catalogue()
        output.answer([asdict(e) for e in entries])
        table = plain_table("", "data set", "where", "notes")
        for e in entries:
            mark = "[green]✓[/]" if e.present else "[red]✗[/]"
            where = str(e.path) if e.path else "made on the fly" if e.present else f"get it: {e.address} ({e.licence})"
            table.add_row(mark, words(e.loader), words(where), words(e.notes))
        output.console.print(table)
        missing = [e for e in entries if not e.present and e.looked_in]
        if missing:
            folders = sorted({str(path.parent) for e in missing for path in e.looked_in})
            output.say(f"\nMissing ones were looked for in {', '.join(folders)}.", style="dim")
