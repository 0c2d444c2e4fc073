"""`axiograd reproduce NAME…`: the paper's tables and figures."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table as RichTable

from axiograd.cli import options
from axiograd.cli.output import speaking
from axiograd.errors import ConfigurationError
from axiograd.experiments import BEYOND_THE_PAPER, OF_THE_PAPER

#: Columns of output that is not a terminal: no table is wider.
WIDE = 400


def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(
            help=f"What to reproduce: {', '.join(OF_THE_PAPER)}; not in the paper: {', '.join(BEYOND_THE_PAPER)}; "
            "or all.",
            metavar="NAME",
        ),
    ],
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Minutes, and no data needed: tiny networks.")] = False,
    imagenet: Annotated[Path | None, typer.Option(help="ImageNet's folder (with val/WNID/): full scale.")] = None,
    weights: Annotated[Path | None, typer.Option(help="Folder of the paper's published checkpoints.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("results"),
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = 0,
    part: Annotated[str | None, typer.Option(help="This process's share of the pieces, such as 2/8.")] = None,
    only_render: Annotated[
        bool, typer.Option("--only-render", help="Compute nothing: tables and figures anew.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Reproduce tables and figures of the paper, its numbers beside ours.

    Three scales:

    * `axiograd reproduce table3 --quick` trains tiny networks on procedural shapes. Nothing to download.

    * `axiograd reproduce table3` uses pretrained networks and the data in AXIOGRAD_DATA; what is missing is named.

    * `axiograd reproduce table3 --imagenet ROOT --weights DIR` is the paper's own: ImageNet, published checkpoints.

    Results are saved piece by piece in OUT/NAME/SCALE.json. **Stop whenever you like: the same command resumes**, and
    what is there already is not computed again. The table (.csv, .md) and the figure (.png, .pdf) are beside it.

    Several processes share the work: `torchrun --nproc-per-node 8 -m axiograd reproduce table3 …`, or one
    `--part 1/8` … `--part 8/8` on each of eight machines with a common folder. The last one to finish merges them.
    """
    from axiograd.experiments.item import Setting
    from axiograd.experiments.reproduce import ITEMS, ProcessShare, find, run

    if quick and (imagenet or weights):
        raise ConfigurationError("--quick needs no data: leave out --imagenet and --weights, or --quick.")
    if (imagenet is None) != (weights is None):
        raise ConfigurationError("the paper's full scale needs both --imagenet ROOT and --weights DIR.")
    setting = Setting("quick" if quick else "full" if imagenet else "real", seed, imagenet, weights)
    chosen = list(ITEMS) if "all" in names else list(dict.fromkeys(names))
    items = [find(name) for name in chosen]
    share = ProcessShare.ensure(part)
    found = []
    with speaking(as_json=json) as output:
        for item in items:
            done = run(item, setting, out, command=command(item.name, names), share=share, only_render=only_render)
            found.append(
                {
                    "item": item.name,
                    "scale": done.setting.scale,
                    "header": done.table.header,
                    "rows": done.table.rows,
                    "note": done.table.note,
                    "missing_pieces": done.missing,
                    "files": [str(path) for path in done.files],
                }
            )
            # Of several processes, the one that finds everything there shows the table.
            if not json and (not done.missing or share.of == 1):
                show(output.console, item.title, done.table.header, done.table.rows)
                output.console.print(Markdown(done.table.note))
            if done.missing:
                output.note(f"{item.name}: {done.missing} of {done.total} pieces are still missing.")
            output.note("Written: " + ", ".join(map(os.fspath, done.files)))
        output.answer(found)


def show(console: Console, title: str, header: tuple[str, ...], rows: tuple[tuple[object, ...], ...]) -> None:
    """A table in the terminal; nothing is cut off where the output is not one."""
    table = RichTable(*header, title=title, title_justify="left")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    (console if console.is_terminal else Console(width=WIDE, file=console.file)).print(table)


def command(name: str, names: list[str]) -> str:
    """What was typed, for one item alone, to be kept with its results."""
    options = [word for word in sys.argv[2:] if word not in names]
    return shlex.join(["axiograd", "reproduce", name, *options])
