"""`axiograd attribute SPEC --data DATA --out FOLDER`: attributions of as many samples as there are, as Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from axiograd.cli import options
from axiograd.cli.output import Output, plain_table, speaking
from axiograd.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from axiograd.cli.inputs import Given
    from axiograd.scale import Listed, Statistics

SCALE = "How it is run"


@options.grouped
def attribute(
    spec: options.Spec,
    data: Annotated[
        list[str],
        typer.Option(
            "--data", help="A data set's name, images, a folder of them, a CSV table, Parquet files, or a .npy file."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the Parquet files.", show_default=False)],
    method: Annotated[
        str, typer.Option("--method", "-m", help="One method; `explain -m '?'` lists all.", rich_help_panel="Method")
    ] = "x-gradient",
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
    engine: Annotated[str, typer.Option(help="plain (one process) or ray.", rich_help_panel=SCALE)] = "plain",
    workers: Annotated[int, typer.Option(help="Ray's workers, one core each.", min=1, rich_help_panel=SCALE)] = 1,
    weights: options.Weights = None,
    settings: options.Settings = None,
    target: Annotated[str, typer.Option(help="predicted, label, or a class by number or name.")] = "predicted",
    classes: options.Classes = None,
    masks: options.Masks = None,
    column: Annotated[str | None, typer.Option(help="Column of Parquet files that holds the inputs.")] = None,
    split: Annotated[str | None, typer.Option(help="Split of a data set.")] = None,
    limit: options.Limit = None,
    batch_size: options.Batch = 32,
    steps: options.Steps = 128,
    seed: options.Seed = 0,
    *,
    reading: options.ReadingOptions,
    download: options.Download = False,
    json: options.Json = False,
) -> None:
    """Attribute every sample of a data set, and write a table with a row per sample: summaries, not pixels.

    Both engines write the same rows; Ray's machines are those of RAY_ADDRESS, or this one. The same command resumes
    where it was stopped or killed. An image that cannot be decoded is a row with an error. `axiograd compare` tells two
    such tables apart.

    `axiograd attribute lifted.safetensors --data photos/ --out monday/ --region logo=0,0,32,32`

    `axiograd attribute lifted.safetensors --data photos/ --out monday/ --masks masks/`: also how much lies inside

    `axiograd attribute lifted.safetensors --data shop.parquet --column image --out monday/ --engine ray --workers 8`
    """
    with speaking(as_json=json) as output:
        from axiograd._io import check_writable
        from axiograd.attribution.methods import find_method
        from axiograd.cli.inputs import read_model
        from axiograd.scale import Attribute, write_attributions

        check_writable(out)
        kept = read_summaries(options.read_list(summary), region or [], masked=masks is not None)
        given = read_model(spec, weights, settings, download=download)
        if given.warning:
            output.warn("Untrained", given.warning)
        source, of_data, prepared = _source(given, data, reading, split=split, column=column, masks=masks)
        pixels = given.prepared(reading)
        first = _first(source, pixels)
        chosen = _match_classes(given, source, of_data, classes, target, first)
        load = partial(_load, Path.cwd(), spec, weights, options.read_settings(settings), download)
        found = write_attributions(
            Attribute(
                given.model if engine == "plain" else load,
                method,
                summary=kept,
                target=chosen,
                preprocess=pixels,
                preprocessing=prepared,
                steps=steps,
                seed=seed,
                references=first if find_method(method).needs_references else None,
            ),
            source,
            out,
            engine=engine,  # type: ignore[arg-type]  # checked there
            workers=workers,
            limit=limit,
            batch_size=batch_size,
        )
        _show(output, found, out)
        output.answer(
            {"model": spec, "data": source.name, "preprocessing": prepared, "out": str(out)} | found.to_dict()
        )


def _load(folder: Path, spec: str, weights: str | None, settings: Mapping[str, Any], download: bool) -> nn.Module:
    """The model, by names that are relative to a folder: a worker may be in another one."""
    from axiograd.loading.specs import load_model

    with chdir(folder):
        return load_model(spec, weights, settings=settings, download=download)


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


def _source(
    given: Given,
    data: list[str],
    reading: options.ReadingOptions,
    *,
    split: str | None,
    column: str | None,
    masks: Path | None,
) -> tuple[Listed, tuple[str, ...], str]:
    """Rows by number, the data's class names, and how rows are prepared, in words."""
    from axiograd.cli.inputs import read_inputs
    from axiograd.cli.masked import with_masks
    from axiograd.scale import Listed, NumpyFile, ParquetFiles

    path = Path(data[0])
    parquet = path.suffix == ".parquet" or (path.is_dir() and any(path.glob("**/*.parquet")))
    if len(data) == 1 and (parquet or path.suffix == ".npy"):
        if masks is not None:
            raise ConfigurationError(f"--masks {masks}: masks belong to image files, and {path} has none.")
        rows = ParquetFiles(path, column=column, label=reading.label) if parquet else NumpyFile(path)
        return rows, (), f"images: {given.prepared(reading)}; numbers: as they are"
    if column is not None:
        raise ConfigurationError(f"--column {column}: columns are for Parquet files.")
    samples = with_masks(read_inputs(given, data, reading, split=split), masks)
    listed = Listed(samples.source, samples.names, samples.read, samples.labels, samples.features, masks=samples.masks)
    return listed, samples.classes, samples.prepared


def _first(source: Listed, pixels: Any) -> Tensor:
    """The first samples of one shape, of those that can be read."""
    import torch

    from axiograd.errors import InputError
    from axiograd.scale.sources import as_sample

    read = [as_sample(value, pixels) for value in source.read(0, 64).inputs]
    found = [one for one in read if isinstance(one, torch.Tensor)]
    if not found:
        reason = getattr(read[0], "reason", "") if read else "there are no rows"
        raise InputError(
            f"{source.name}: none of the first {len(read)} samples can be read; the first one: {reason.rstrip('.')}."
        )
    return torch.stack([one for one in found if one.shape == found[0].shape])


def _match_classes(
    given: Given, source: Listed, of_data: tuple[str, ...], file: Path | None, target: str, first: Tensor
) -> int | str:
    """Make the source's labels the model's classes; what is attributed."""
    from axiograd._state import like_of
    from axiograd.cli.attributing import scores_of

    n = scores_of(given.model, first[:1].to(like_of(given.model))).shape[1]
    names = given.class_names(file, of_data, n)
    if of_data and source.labels is not None:
        matched = names.match(range(len(of_data)), of_data, n)
        source.labels = [None if matched is None else matched[label] for label in source.labels]
    return target if target in {"predicted", "label"} else names.index(target)


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
