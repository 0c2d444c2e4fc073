"""`axiograd attribute SPEC --data DATA --out FOLDER`: attributions of as many samples as there are, as Parquet."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from axiograd.cli import options
from axiograd.cli.output import Output, plain_table, speaking
from axiograd.errors import ConfigurationError

if TYPE_CHECKING:
    from axiograd.cli.inputs import Given
    from axiograd.scale import Attribute, Source, Statistics

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
            help="What is kept: windows[=SIZE], top-k[=K], per-channel, histogram, low-rank[=RANK], pixels.  "
            "[default: windows]",
            show_default=False,
        ),
    ] = None,
    region: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=X0,Y0,X1,Y1", help="Also keep the share of this box; may be repeated."),
    ] = None,
    engine: Annotated[str, typer.Option(help="plain (one process) or ray.", rich_help_panel=SCALE)] = "plain",
    workers: Annotated[int, typer.Option(help="Ray's workers, one core each.", min=1, rich_help_panel=SCALE)] = 1,
    address: Annotated[
        str | None, typer.Option(help="A running Ray cluster, as auto or ray://host:10001.", rich_help_panel=SCALE)
    ] = None,
    part_rows: Annotated[int, typer.Option(help="Rows of one file.", min=1, rich_help_panel=SCALE)] = 1024,
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

    Both engines write the same files. The same command resumes where it was stopped or killed. An image that cannot be
    decoded is a row with an error. `axiograd compare` tells two such tables apart.

    `axiograd attribute lifted.safetensors --data photos/ --out monday/ --region logo=0,0,32,32`

    `axiograd attribute lifted.safetensors --data photos/ --out monday/ --masks masks/`: also how much lies inside

    `axiograd attribute lifted.safetensors --data shop.parquet --column image --out monday/ --engine ray --workers 8`
    """
    with speaking(as_json=json) as output:
        from axiograd._io import check_writable
        from axiograd.cli.inputs import read_model
        from axiograd.scale import write_attributions

        check_writable(out)
        kept = read_summaries(options.read_list(summary), region or [], masked=masks is not None)
        given = read_model(spec, weights, settings, download=download)
        source, prepared = _source(given, data, reading, split=split, column=column, limit=limit, masks=masks)
        source, chosen = _matched(given, source, classes, target)
        maker = Maker(
            _absolute(spec),
            None if weights is None else _absolute(weights),
            options.read_settings(settings),
            download,
            {
                "method": method,
                "summary": kept,
                "target": chosen,
                "preprocessing": prepared,
                "steps": steps,
                "seed": seed,
                "references": _references(method, source),
            },
        )
        if given.warning:
            output.warn("Untrained", given.warning)
        found = write_attributions(
            maker,
            source,
            out,
            engine=engine,  # type: ignore[arg-type]  # checked there
            workers=workers,
            address=address,
            batch_size=batch_size,
            part_rows=part_rows,
        )
        _show(output, found, out)
        output.answer(
            {"model": spec, "data": source.name, "preprocessing": prepared, "out": str(out)} | found.to_dict()
        )
    if found.rows == found.errors:
        raise ConfigurationError(
            f"none of the {found.rows} samples could be attributed: {out} has the reason for each."
        )


@dataclass(frozen=True)
class Maker:
    """What a worker makes the model and its method from: names and settings, so that nothing large is sent to it."""

    spec: str
    weights: str | None
    settings: dict[str, Any]
    download: bool
    how: dict[str, Any]

    def __call__(self) -> Attribute:
        from axiograd.loading.specs import load_model
        from axiograd.scale import Attribute

        model = load_model(self.spec, self.weights, settings=self.settings, download=self.download)
        return Attribute(model, **self.how)


@dataclass(frozen=True)
class Relabelled:
    """A source whose labels are the model's classes, and of which some rows may be left out at the end."""

    inner: Source
    #: The data's class names, until `_matched` puts the model's classes in their place.
    classes: dict[int, Any] = field(default_factory=dict)
    limit: int | None = None
    #: Where the masks are, and how many images have one.
    masks: str | None = None

    @property
    def name(self) -> str:
        """As it was."""
        return self.inner.name

    @property
    def features(self) -> Any:
        """What the columns of a table are called."""
        return getattr(self.inner, "features", ())

    def __len__(self) -> int:
        return len(self.inner) if self.limit is None else min(self.limit, len(self.inner))

    def read(self, start: int, stop: int) -> Any:
        """The rows with their labels as the model has them."""
        from dataclasses import replace

        found = self.inner.read(start, min(stop, len(self)))
        if not self.classes:
            return found
        return replace(found, labels=[None if one is None else self.classes.get(one) for one in found.labels])

    def settings(self) -> dict[str, Any]:
        """What a resumed command must have in common with the one that it resumes."""
        return {"rows": self.inner.settings(), "classes": self.classes, "limit": self.limit, "masks": self.masks}


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
    limit: int | None,
    masks: Path | None,
) -> tuple[Source, str]:
    """Rows by number, and how they are prepared, in words."""
    from axiograd.cli.inputs import read_inputs
    from axiograd.cli.masked import ImageMasks, with_masks
    from axiograd.scale.sources import Listed, NumpyFile, ParquetFiles

    path = Path(data[0])
    parquet = path.suffix == ".parquet" or (path.is_dir() and any(path.glob("**/*.parquet")))
    if len(data) == 1 and (parquet or path.suffix == ".npy"):
        if masks is not None:
            raise ConfigurationError(f"--masks {masks}: masks belong to image files, and {path} has none.")
        prepared = given.prepared(reading)
        source: Source
        if parquet:
            source = ParquetFiles(path, column=column, label=reading.label, preprocess=prepared)
        else:
            source = NumpyFile(path, prepared)
        return Relabelled(source, limit=limit), f"images: {prepared}; numbers: as they are"
    if column is not None:
        raise ConfigurationError(f"--column {column}: columns are for Parquet files.")
    samples = with_masks(read_inputs(given, data, reading, split=split), masks)
    listed = Listed(samples.source, samples.names, samples.read, samples.labels, samples.features, masks=samples.masks)
    where = f"{masks}, of {len(samples.masks.found.found)} images" if isinstance(samples.masks, ImageMasks) else None
    return Relabelled(listed, dict(enumerate(samples.classes)), limit, where), samples.prepared


def _matched(given: Given, source: Source, file: Path | None, target: str) -> tuple[Source, int | str]:
    """The source with the model's classes as labels, and what is attributed."""
    from dataclasses import replace

    from axiograd._state import like_of
    from axiograd.cli.attributing import scores_of
    from axiograd.scale.attribute import first_sample

    assert isinstance(source, Relabelled)  # noqa: S101  # made above
    read = source.inner.read(0, min(64, len(source)))
    first = first_sample(read.inputs, source.name).unsqueeze(0).to(like_of(given.model))
    n = scores_of(given.model, first).shape[1]
    of_data = tuple(str(name) for name in source.classes.values())
    names = given.class_names(file, of_data, n)
    known = sorted(source.classes) or []
    matched = names.match(known, of_data, n) if known else None
    if known:
        source = replace(source, classes={one: matched[i] if matched else None for i, one in enumerate(known)})
    if target in {"predicted", "label"}:
        return source, target
    return source, names.index(target)


def _references(method: str, source: Source) -> Any:
    """Expected Gradients' references: the first samples."""
    import torch

    from axiograd.attribution.methods import find_method

    if not find_method(method).needs_references:
        return None
    found = [one for one in source.read(0, 64).inputs if isinstance(one, torch.Tensor)]
    return torch.stack([one for one in found if one.shape == found[0].shape])


def _absolute(spec: str) -> str:
    """A SPEC, or weights, that mean the same in a worker's folder."""
    path, colon, name = spec.rpartition(":")
    if path == "hf" and Path(name).is_dir():
        return f"hf:{Path(name).resolve()}"
    if colon and Path(path).is_file():
        return f"{Path(path).resolve()}:{name}"
    return str(Path(spec).resolve()) if not colon and Path(spec).is_file() else spec


def _show(output: Output, found: Statistics, out: Path) -> None:
    told = found.to_dict()
    table = plain_table("", "mean", "standard error", right=("mean", "standard error"))
    for name, value in told["all"].items():
        if isinstance(value, dict):
            error = "–" if value["se"] is None else f"{value['se']:.2g}"
            table.add_row(name, f"{value['mean']:.4g}", error)
    output.say(f"{found.rows:,} rows in {out}, {len(found.classes)} classes attributed")
    if found.accuracy is not None:
        output.say(f"accuracy            {found.accuracy:.2%} of {found.labelled:,} with a label")
    output.say(f"completeness error  {found.completeness:.1e} of the root mean square of F(x) − F(0)")
    if masked := found.over("share_mask").n:
        output.say(f"masks               {masked:,} of {found.rows:,} rows have one, of which the shares are")
    output.say("")
    output.console.print(table)
    if found.errors:
        output.warn("Errors", f"{found.errors:,} rows could not be read or attributed; their column `error` says why.")
