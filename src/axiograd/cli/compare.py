"""`axiograd compare BEFORE AFTER`: does the model look at other things than it did?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from axiograd.cli import options
from axiograd.cli.output import speaking


def compare(
    before: Annotated[Path, typer.Argument(help="What `axiograd attribute` wrote: a folder, or one Parquet file.")],
    after: Annotated[Path, typer.Argument(help="The same, of another model, or of other samples.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Picture of what changed: PNG, PDF or SVG.", show_default=False)
    ] = None,
    alpha: Annotated[float, typer.Option(help="Chance of a false alarm over everything that is looked at.")] = 0.05,
    pairs: Annotated[
        bool | None,
        typer.Option("--pairs/--no-pairs", help="Compare rows of the same name; by default where all names agree."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Compare two tables of attributions: which windows, regions and classes changed, by a permutation test.

    Exit code 0: no change. Exit code 1: something changed; the chance of that is at most --alpha where nothing did. So
    it can stand in a pipeline. It compares means, and how many rows are unusual: what concerns one row in a hundred may
    go unnoticed.

    `axiograd compare monday/ tuesday/ --out changed.png`

    `axiograd compare model-1/ model-2/ --alpha 0.01 --json`
    """
    with speaking(as_json=json) as output:
        from axiograd.scale import compare as run

        found = run(before, after, alpha=alpha, paired=pairs)
        if out is not None:
            found.plot(path=out)
        output.say(str(found))
        if out is not None:
            output.say(f"Picture: {out}", style="dim")
        output.answer(found.to_dict())
    raise typer.Exit(1 if found.changed else 0)
