"""`axiograd train CONFIG`: train a model as a TOML file says, or resume a run that was stopped."""

from pathlib import Path
from typing import Annotated, Any

import typer

from axiograd.cli import options
from axiograd.cli.output import Output, plain_table, speaking
from axiograd.errors import DataMissingError


def train(
    config: Annotated[Path, typer.Argument(help="TOML file with model, data, loss, recipe and out.")],
    out: Annotated[Path | None, typer.Option(help="Another folder than the file's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed than the file's.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the file and build what is axiograd's; run no Python of yours.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Train a model as CONFIG says; a run that was stopped or killed resumes after its last whole epoch.

    last.ckpt, best.ckpt, the log (logs/) and model.safetensors (the best weights) are written to the folder `out`. A
    CONFIG that names package.module:function or file.py:function runs that Python: read it before you run it. Ctrl-C
    leaves interrupted.ckpt. A folder that holds a run with other settings is refused.

    `axiograd train decoy.toml --dry-run`, then `axiograd train decoy.toml`
    """
    with speaking(as_json=json) as output:
        from dataclasses import replace  # torch is slow to import: not before the options are read

        from axiograd.training.config import load_config, train_from

        if not config.exists():
            raise DataMissingError(f"there is no file {config}.")
        settings = load_config(config)
        changes: dict[str, Any] = {"out": out, "seed": seed}
        settings = replace(settings, **{name: value for name, value in changes.items() if value is not None})
        if dry_run:
            _dry_run(output, config, settings)
            return
        given = {"progress": False} if json else {}  # the bar is Lightning's, on stdout
        result = train_from(settings, on_convert=lambda made: output.note(str(made).splitlines()[0]), **given)
        output.answer(
            {
                "model": settings.model.name,
                "steps": result.steps,
                "seconds": result.seconds,
                "history": result.history,
                "best": result.best,
                "weights": None if result.weights is None else str(result.weights),
            }
        )
        title = f"{settings.model.name}: {result.steps:,} steps in {result.seconds:.1f} s"
        columns = tuple(result.history[-1])
        table = plain_table(*columns, title=title, right=columns)
        for row in result.history[-10:]:
            table.add_row(*(f"{value:.4g}" for value in row.values()))
        output.console.print(table)
        if result.best is not None:
            output.say(f"Best validation {result.best['validation']:.4g} after epoch {int(result.best['epoch'])}.")
        output.say(f"Weights: {result.weights}")


def _dry_run(output: Output, config: Path, settings: Any) -> None:
    """Build what is ours; what is the user's own is located, and not imported: importing it would run it."""
    from axiograd.training.config import build_data, build_loss, build_model, code_named_in, with_arguments
    from axiograd.training.data import ensure_dataset

    code = code_named_in(settings)
    data, validation = (None, None) if "data.name" in code else build_data(settings)
    needs_data = settings.model.convert is not None and data is None
    model = None if "model.name" in code or needs_data else build_model(settings, data)[0]
    if not any(where.startswith("loss") for where in code):
        build_loss(settings)
    parameters = None if model is None else sum(parameter.numel() for parameter in model.parameters())
    samples = None if data is None else len(ensure_dataset(with_arguments(settings, data), "data"))
    validated = None if validation is None else len(ensure_dataset(validation, "data.validation"))
    output.answer(
        {
            "model": settings.model.name,
            "parameters": parameters,
            "samples": samples,
            "validation_samples": validated,
            "epochs": settings.recipe.epochs,
            "out": str(settings.out),
            "code_not_run": code,
        }
    )
    size = "" if parameters is None else f" with {parameters:,} parameters"
    counted = "" if samples is None else f"; {samples:,} samples to train on, {validated or 0:,} to validate with"
    output.say(f"{config}: {settings.model.name}{size}{counted}; {settings.recipe.epochs} epochs into {settings.out}")
    for where, name in code.items():
        output.note(f"{where} = {name!r} is your own Python: found, and not run by --dry-run.")
