"""`axiograd list`: axiograd's models and data sets, what is on this machine, and where to get the rest."""

from __future__ import annotations

from dataclasses import asdict
from fnmatch import fnmatch
from typing import Annotated, Any

import typer

from axiograd.cli import options
from axiograd.cli.output import Output, plain_table, speaking, words
from axiograd.errors import ConfigurationError


def list_all(
    pattern: Annotated[str | None, typer.Argument(help="Only names that match, as 'x*'.", show_default=False)] = None,
    json: options.Json = False,
) -> None:
    """List axiograd's models with their known weights, and the data sets: which are here, and where to get the others.

    Models whose names begin with x are X-DNNs (no biases); the others are their regular twins. Weights and data are
    looked for in the folder that the environment variable AXIOGRAD_DATA names, and in the cache; nothing is downloaded.

    `axiograd list 'x*'`

    `AXIOGRAD_DATA=~/data axiograd list`
    """
    with speaking(as_json=json) as output:
        from axiograd.datasets import catalogue
        from axiograd.models import list_models

        models = [_model(name) for name in list_models(pattern)]
        data = [asdict(entry) for entry in catalogue() if pattern is None or fnmatch(entry.loader, pattern)]
        if not models and not data:
            raise ConfigurationError(f"no model and no data set matches {pattern!r}: `axiograd list` has all.")
        output.answer({"models": models, "datasets": data})
        _show(output, models, data)


def _model(name: str) -> dict[str, Any]:
    import torch

    from axiograd.models import get_model, list_weights

    with torch.device("meta"):  # shapes without memory: the large ones have hundreds of megabytes
        parameters = sum(parameter.numel() for parameter in get_model(name).parameters())
    weights = [
        {"name": w.name, "file": w.file, "here": str(w.locate() or "") or None, "notes": w.notes, "url": w.url}
        for w in list_weights(name)
    ]
    return {"name": name, "x_dnn": name.startswith("x"), "parameters": parameters, "weights": weights}


def _show(output: Output, models: list[dict[str, Any]], data: list[dict[str, Any]]) -> None:
    table = plain_table("model", "kind", "parameters", "weights", "what they are", right=("parameters",))
    for row in models:
        first = (row["name"], "[green]X-DNN[/]" if row["x_dnn"] else "regular", f"{row['parameters']:,}")
        if not row["weights"]:
            table.add_row(*first, "[dim]–[/]", "")
        for place, weights in enumerate(row["weights"]):
            here = "[green]✓[/]" if weights["here"] else "[dim]not here[/]"
            table.add_row(
                *(first if place == 0 else ("", "", "")), f"{weights['name']} {here}", words(weights["notes"])
            )
    if models:
        output.console.print(table)
        output.say("Use them as SPEC: axiograd check xalexnet; with weights: … SPEC --weights NAME\n", style="dim")
    table = plain_table("", "data set", "where", "notes")
    for each in data:
        mark = "[green]✓[/]" if each["present"] else "[red]✗[/]"
        made = "made on the fly" if each["present"] else f"get it: {each['address']} ({each['licence']})"
        table.add_row(mark, words(each["loader"]), words(each["path"] or made), words(each["notes"]))
    if data:
        output.console.print(table)
