"""`axiograd attribute SPEC --data DATA --out FOLDER`: attributions of as many samples as there are, as Parquet."""

from __future__ import annotations

from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from axiograd.cli import options
from axiograd.cli.output import Output, plain_table, speaking
from axiograd.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import nn

    from axiograd.scale import Statistics


def attribute(
    spec: options.Spec,
    data: Annotated[
        list[str],
        typer.Option(
            "--data", help="A data set's name, images, a folder of them, a CSV table, Parquet files, or a .npy file."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the Parquet files.", show_default=False)],
    method: Annotated[str, typer.Option("--method", "-m", help="One method, as `explain -m` has them.")] = "x-gradient",
    summary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=N],…",
            help="What is kept: windows[=SIZE], top-k[=K], per-channel, pixels.  [default: windows]",
            show_default=False,
        ),
    ] = None,
    region: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=X0,Y0,X1,Y1", help="Also keep the share of this box; may be repeated."),
    ] = None,
    masks: options.Masks = None,
    target: options.Target = "predicted",
    workers: Annotated[
        int | None, typer.Option(help="Ray's workers, one core each; without it, this process.", min=1)
    ] = None,
    column: Annotated[str | None, typer.Option(help="Column of Parquet files that holds the inputs.")] = None,
    limit: options.Limit = None,
    batch_size: options.Batch = 32,
    steps: options.Steps = 128,
    weights: options.Weights = None,
    settings: options.Settings = None,
    preprocess: options.Preprocess = None,
    device: options.Device = "cpu",
    json: options.Json = False,
) -> None:
    """Attribute every sample of a data set, and write a table with a row per sample: summaries, not pixels.

    With --workers Ray attributes, on the machines of RAY_ADDRESS or on this one, and writes the same rows. The same
    command resumes where it was stopped or killed. An image that cannot be decoded is a row with an error.
    `axiograd compare` tells two such tables apart.

    `axiograd attribute x.safetensors --data photos/ --out monday/ --region logo=0,0,32,32`

    `axiograd attribute x.safetensors --data photos/ --out monday/ --masks masks/`: also how much lies inside

    `axiograd attribute x.safetensors --data shop.parquet --column image --out monday/ --workers 8`
    """
    with speaking(as_json=json) as output:
        import torch

        from axiograd._calls import class_scores
        from axiograd._io import check_writable
        from axiograd.attribution.methods import find_method
        from axiograd.pipeline import read_samples
        from axiograd.pipeline.samples import first_inputs
        from axiograd.scale import Attribute, write_attributions

        check_writable(out)
        kept = read_summaries(options.read_list(summary), region or [], masked=masks is not None)
        loaded = options.read_model(spec, weights, settings, device=device)
        if loaded.warning:
            output.warn("Untrained", loaded.warning)
        samples = read_samples(loaded, data, preprocess=preprocess, masks=masks, column=column)
        first = first_inputs(samples, loaded)
        with torch.no_grad():
            n = class_scores(loaded.model(first[:1]), 1).shape[1]
        if samples.classes and samples.source.labels is not None:
            samples.source.labels = samples.labels_of(loaded, n)
        given = options.read_settings(settings)
        found = write_attributions(
            Attribute(
                loaded.model if workers is None else partial(_load, Path.cwd(), spec, weights, given, device),
                method,
                summary=kept,
                target=target if target in {"predicted", "label"} else samples.class_names(loaded, n).index(target),
                preprocess=samples.pixels,
                preprocessing=samples.prepared,
                steps=steps,
                references=first if find_method(method).needs_references else None,
            ),
            samples.source,
            out,
            workers=workers,
            limit=limit,
            batch_size=batch_size,
        )
        _show(output, found, out)
        about = {"model": spec, "data": samples.source.name, "preprocessing": samples.prepared, "out": str(out)}
        output.answer(about | found.to_dict())


def _load(folder: Path, spec: str, weights: str | None, settings: dict[str, Any], device: str) -> nn.Module:
    """The model, by names that are relative to a folder: a worker may be in another one."""
    from axiograd.loading import load

    with chdir(folder):
        return load(spec, weights, settings=settings).model.to(device)


def read_summaries(names: list[str], regions: list[str], *, masked: bool = False) -> list[Any]:
    """Summaries by name, with the one number that each of them has; boxes; and what lies inside masks.

    >>> read_summaries(["windows=4", "top-k"], ["logo=0,0,8,8"])
    [Windows(size=4), TopK(k=400), Regions(regions={'logo': (0.0, 0.0, 8.0, 8.0)})]
    """
    from axiograd._names import choose_from
    from axiograd.scale import InMasks
    from axiograd.scale.summaries import SUMMARIES, Regions

    found: list[Any] = []
    for text in names or ["windows"]:
        name, _, number = text.partition("=")
        if name not in SUMMARIES:
            raise ConfigurationError(f"--summary {name}: {choose_from(name, SUMMARIES)}.")
        try:
            found.append(SUMMARIES[name](*([int(number)] if number else [])))
        except (TypeError, ValueError):
            raise ConfigurationError(f"--summary {text}: expected {name}, or {name}=NUMBER where it has one.") from None
    boxes: dict[str, tuple[float, ...]] = {}
    for text in regions:
        name, _, corners = text.partition("=")
        try:
            boxes[name] = tuple(float(part) for part in corners.split(","))
        except ValueError:
            raise ConfigurationError(f"--region {text}: expected NAME=X0,Y0,X1,Y1, in pixels.") from None
    return [*found, *([Regions(boxes)] if boxes else []), *([InMasks()] if masked else [])]


def _show(output: Output, found: Statistics, out: Path) -> None:
    table = plain_table("", "mean", "standard error", right=("mean", "standard error"))
    for name, value in found.all.items():
        if isinstance(value, dict):
            error = "–" if value["se"] is None else f"{value['se']:.2g}"
            table.add_row(name, f"{value['mean']:.4g}", error)
    output.say(f"{found.rows:,} rows in {out}, {len(found.classes)} classes attributed")
    if found.accuracy is not None:
        output.say(f"accuracy            {found.accuracy:.2%} of {found.labelled:,} with a label")
    if found.completeness is not None:
        output.say(f"completeness error  {found.completeness:.1e} of the root mean square of F(x) − F(0)")
    if "share_mask" in found.all:
        masked = found.all["share_mask"]["rows"]
        output.say(f"masks               {masked:,} of {found.rows:,} rows have one, of which the shares are")
    output.say("")
    output.console.print(table)
    if found.errors:
        output.warn("Errors", f"{found.errors:,} rows could not be read or attributed; their column `error` says why.")
