"""`axiograd export SPEC -o FILE`: prediction, exact attribution and proof in one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from axiograd.cli import options
from axiograd.cli.output import Output, speaking
from axiograd.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import Tensor, nn

_PLACES = ("outside", "inside")


@options.grouped
def export(
    spec: options.Spec,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write, FILE.onnx or FILE.pt2.", show_default=False)
    ] = None,
    weights: options.Weights = None,
    settings: options.Settings = None,
    shape: options.Shape = None,
    target: Annotated[
        str, typer.Option(help="What the file is asked for: index, a class per sample; weights, one per output.")
    ] = "index",
    pool: Annotated[
        int | None, typer.Option(help="Also give attributions summed over windows of this many pixels.", min=1)
    ] = None,
    preprocessing: Annotated[
        str, typer.Option(help="inside: the file takes uint8 images of any size; outside: what the model takes.")
    ] = "outside",
    classes: Annotated[
        Path | None, typer.Option(help="Names of the classes, one per line or JSON; kept in the file.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Folder for a page on which the model explains photos and the camera.")
    ] = None,
    onnxruntime_web: Annotated[
        Path | None,
        typer.Option(help="The npm package onnxruntime-web as a .tgz file, for the page; else --download fetches it."),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="How far the file may be from PyTorch, relative to the largest attribution.")
    ] = 1e-3,
    *,
    pixels: options.PixelOptions,
    sizes: Annotated[bool, typer.Option("--sizes", help="Leave height and width of images free.")] = False,
    download: options.Download = False,
    json: options.Json = False,
) -> None:
    """Write a model that is an X-DNN, with its attribution and its certificate, as one ONNX or .pt2 file.

    The file takes the model's inputs and a target, and gives the output, the attribution, and the gap between the two
    sums. It is run and compared with PyTorch before it is kept. `axiograd check FILE.onnx` says what a file is.

    `axiograd export lifted.safetensors -o model.onnx`

    `axiograd export lifted.safetensors -o model.onnx --preprocessing inside --pool 8`

    `axiograd export lifted.safetensors --page live/` and `python -m http.server -d live`
    """
    _check(out, page, preprocessing, onnxruntime_web)
    with speaking(as_json=json) as output:
        from json import dumps

        from axiograd.cli.attributing import scores_of
        from axiograd.cli.inputs import read_model
        from axiograd.export import export_onnx, export_page, export_pt2
        from axiograd.loading.specs import example_input

        given = read_model(spec, weights, settings, download=download)
        model = given.model
        prepared = given.prepared(pixels)
        made = None if given.recipe is None else ",".join(map(str, given.recipe.shape))
        inputs = example_input(model, shape or made)
        if shape is None:
            inputs = _of_size(model, inputs, prepared.transform.crop)
        images = inputs.dim() == 4  # noqa: PLR2004  # batch, channels, height and width
        count = scores_of(model, inputs).shape[1]
        known = given.class_names(classes, (), count)
        names = tuple(known[i] for i in range(count)) if any(known.names) else ()
        if given.warning:
            output.say(given.warning)
        common: dict[str, Any] = {"classes": names, "tolerance": tolerance}
        cards = []
        if out is not None:
            wanted = {"target": cast("Any", target), "sizes": sizes, "pool": pool, **common}
            if images:
                wanted["preprocessing"] = prepared.transform if preprocessing == "inside" else str(prepared)
            elif given.schema is not None:
                wanted["preprocessing"] = dumps(given.schema.to_dict(), ensure_ascii=False)
            if out.suffix == ".pt2":
                cards.append(export_pt2(model, inputs, out, **wanted))
            else:
                cards.append(export_onnx(model, inputs, out, **wanted, inside=preprocessing == "inside"))
        if page is not None:
            how: dict[str, Any] = {
                "preprocessing": prepared.transform,
                "name": given.base,
                "onnxruntime_web": onnxruntime_web,
                "download": download,
            }
            cards.append(export_page(model, inputs, page, **how, **common))
        output.answer(cards[0].to_json())
        output.say(str(cards[0]))
        _say_where(output, out, page)


def _say_where(output: Output, out: Path | None, page: Path | None) -> None:
    if out is not None:
        output.say(f"\nWritten to {out}.", style="bold")
    if page is not None:
        output.say(f"\nA page in {page}: python -m http.server -d {page}, then http://localhost:8000.", style="bold")


def _check(out: Path | None, page: Path | None, preprocessing: str, package: Path | None) -> None:
    if preprocessing not in _PLACES:
        raise ConfigurationError(f"--preprocessing {preprocessing}: choose inside or outside.")
    if out is None and page is None:
        raise ConfigurationError("say what to write: -o FILE.onnx, -o FILE.pt2, or --page FOLDER.")
    if out is not None and out.suffix not in {".onnx", ".pt2"}:
        raise ConfigurationError(f"-o {out}: the file's name ends in .onnx or .pt2.")
    if out is not None and out.suffix == ".pt2" and preprocessing == "inside":
        raise ConfigurationError(f"-o {out}: preprocessing is put inside ONNX files only.")
    if package is not None and page is None:
        raise ConfigurationError("--onnxruntime-web is for a page: say --page FOLDER too.")


def _of_size(model: nn.Module, inputs: Tensor, crop: int | None) -> Tensor:
    """Images as they come out of the preprocessing, if the model takes them of that size."""
    from axiograd.cli.attributing import scores_of
    from axiograd.loading.specs import example_input

    if crop is None or inputs.dim() != 4 or inputs.shape[2:] == (crop, crop):  # noqa: PLR2004  # images
        return inputs
    other = example_input(model, f"{inputs.shape[1]},{crop},{crop}")
    try:
        scores_of(model, other)
    except Exception:  # noqa: BLE001  # then the sizes do not fit, which the export reports
        return inputs
    return other


def is_ours(path: str) -> bool:
    """Whether a file carries a card, as those of `axiograd export` do."""
    from axiograd.errors import AxiogradError
    from axiograd.export import read

    try:
        read(path)
    except AxiogradError:
        return not Path(path).is_file()
    return True


def show_file(output: Output, path: str) -> bool:
    """Say what an exported file is."""
    from axiograd.export import read

    card = read(path)
    output.answer(card.to_json())
    output.say(str(card))
    return True
