"""`axiograd models`: the models by name, their sizes, and which weights there are."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from axiograd.cli import options
from axiograd.cli.output import Output, plain_table, speaking, words
from axiograd.errors import ConfigurationError


def models(
    pattern: Annotated[str | None, typer.Argument(help="Only names that match, as 'x*'.", show_default=False)] = None,
    *,
    json: options.Json = False,
) -> None:
    """List axiograd's models: X-DNNs (names with an x, no biases) and their regular twins, with known weights.

    Weights are looked for in AXIOGRAD_DATA/weights and in the cache; nothing is downloaded here.

    `axiograd models 'x*'`
    """
    with speaking(as_json=json) as output:
        from axiograd.models import list_models

        rows = [_row(name) for name in list_models(pattern)]
        if not rows:
            raise ConfigurationError(f"no model matches {pattern!r}: `axiograd models` lists all.")
        output.answer(rows)
        _show(output, rows)


def _row(name: str) -> dict[str, Any]:
    import torch

    from axiograd.models import get_model, list_weights

    with torch.device("meta"):  # shapes without memory: the large ones have hundreds of megabytes
        model = get_model(name)
    weights: list[dict[str, Any]] = [
        {"name": w.name, "file": w.file, "here": str(path) if (path := w.locate()) else None, "notes": w.notes}
        | {"url": w.url, "default": place == 0}
        for place, w in enumerate(list_weights(name))
    ]
    return {
        "name": name,
        "x_dnn": name.startswith("x"),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "weights": weights,
    }


def _show(output: Output, rows: list[dict[str, Any]]) -> None:
    table = plain_table("model", "kind", "parameters", "weights", "what they are", right=("parameters",))
    for row in rows:
        kind = "[green]X-DNN[/]" if row["x_dnn"] else "regular"
        first = (row["name"], kind, f"{row['parameters']:,}")
        if not row["weights"]:
            table.add_row(*first, "[dim]–[/]", "")
        for place, weights in enumerate(row["weights"]):
            here = "[green]✓[/]" if weights["here"] else "[dim]not here[/]"
            known = f"{weights['name']} {here}"
            table.add_row(*(first if place == 0 else ("", "", "")), known, words(weights["notes"]))
    output.console.print(table)
    output.console.print(
        "\n[dim]Use them as SPEC: axiograd check xalexnet; with weights: axiograd explain SPEC … --weights NAME[/]"
    )
