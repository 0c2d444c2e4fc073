"""`axiograd train CONFIG`: train a model as a TOML file says, or go on with a run that was stopped."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table


def train(
    config: Annotated[Path, typer.Argument(help="TOML file with model, data, loss, recipe and out.")],
    *,
    out: Annotated[Path | None, typer.Option(help="Another folder than the file's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed than the file's.")] = None,
    devices: Annotated[int | None, typer.Option(help="Processes on this machine.")] = None,
    precision: Annotated[str | None, typer.Option(help="32-true, bf16-mixed, 64-true …")] = None,
    progress: Annotated[bool | None, typer.Option(help="Show the bar (by default on a terminal).")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file, build everything, do not train.")] = False,
) -> None:
    """Train a model as CONFIG says; a run that was stopped or killed goes on where it was.

    Checkpoints, metrics.csv, TensorBoard events and model.safetensors (the best weights) are written to the
    folder `out`. SIGTERM finishes the step, saves and leaves with exit code 143.
    """
    from dataclasses import replace  # torch is slow to import: not before the options are read

    from axiograd.training.assemble import build_data, build_loss, build_model, train_from
    from axiograd.training.config import load_config

    settings = load_config(config)
    changes: dict[str, Any] = {"out": out, "seed": seed}
    settings = replace(settings, **{name: value for name, value in changes.items() if value is not None})
    if dry_run:
        model, (data, validation) = build_model(settings), build_data(settings)
        build_loss(settings)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        validated = "none" if validation is None else f"{len(validation):,}"
        print(f"{config}: {settings.model.name} with {parameters:,} parameters; {len(data):,} samples to train on")
        print(f"and {validated} to validate with; {settings.recipe.epochs} epochs into {settings.out}")
        return
    given: dict[str, Any] = {"devices": devices, "precision": precision, "progress": progress}
    result = train_from(settings, **{name: value for name, value in given.items() if value is not None})
    table = Table(title=f"{settings.model.name}: {result.steps:,} steps in {result.seconds:.1f} s")
    for column in result.history[-1]:
        table.add_column(column)
    for row in result.history[-10:]:
        table.add_row(*(f"{value:.4g}" for value in row.values()))
    console = Console()
    console.print(table)
    if result.best is not None:
        best = f"Best validation {result.best['validation']:.4g} after epoch {int(result.best['epoch'])}."
        console.print(best, highlight=False)
    console.print(f"Weights: {result.weights}", highlight=False, soft_wrap=True)
