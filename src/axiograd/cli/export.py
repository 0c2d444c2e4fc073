"""`axiograd export SPEC -o FILE`: prediction, exact attribution and proof in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from axiograd.cli import options
from axiograd.cli.output import Output, speaking
from axiograd.errors import ConfigurationError

_PLACES = ("outside", "inside")


def export(
    spec: options.Spec,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, FILE.onnx or FILE.pt2.", show_default=False)],
    weights: options.Weights = None,
    settings: options.Settings = None,
    shape: options.Shape = None,
    target: Annotated[
        str, typer.Option(help="What the file is asked for: index, a class per sample; weights, one per output.")
    ] = "index",
    pool: Annotated[
        int | None, typer.Option(help="Also give attributions summed over windows of so many pixels.", min=1)
    ] = None,
    preprocessing: Annotated[
        str, typer.Option(help="inside: the file takes uint8 images of any size; outside: what the model takes.")
    ] = "outside",
    preprocess: options.Preprocessing = None,
    size: options.Size = None,
    mean: options.Mean = None,
    std: options.Std = None,
    classes: Annotated[
        Path | None, typer.Option(help="Names of the classes, one per line or JSON; kept in the file.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="How far the file may be from PyTorch, relative to the largest attribution.")
    ] = 1e-5,
    *,
    sizes: Annotated[bool, typer.Option("--sizes", help="Leave height and width of images free.")] = False,
    download: options.Download = False,
    json: options.Json = False,
) -> None:
    """Write a model that is an X-DNN, with its attribution and its certificate, as one ONNX or .pt2 file.

    The file takes the model's inputs and a target, and gives the output, the attribution, and the gap between the two
    sums. It is run and compared with PyTorch before it is kept. `axiograd check FILE.onnx` says what a file is.

    `axiograd export lifted.safetensors -o model.onnx`

    `axiograd export lifted.safetensors -o model.onnx --preprocessing inside --pool 8`
    """
    if preprocessing not in _PLACES:
        raise ConfigurationError(f"--preprocessing {preprocessing}: choose inside or outside.")
    if out.suffix not in {".onnx", ".pt2"}:
        raise ConfigurationError(f"-o {out}: the file's name ends in .onnx or .pt2.")
    if out.suffix == ".pt2" and preprocessing == "inside":
        raise ConfigurationError(f"-o {out}: preprocessing is put inside ONNX files only.")
    with speaking(as_json=json) as output:
        from axiograd.cli.attributing import scores_of
        from axiograd.cli.classes import read_names
        from axiograd.cli.converted import base_spec
        from axiograd.cli.preprocess import choose
        from axiograd.cli.spec import example_input, load_model
        from axiograd.export import export_onnx, export_pt2

        model = load_model(spec, weights, settings=options.read_settings(settings), download=download)
        inputs = example_input(model, _shape(spec, weights, shape))
        prepared = choose(base_spec(spec, weights), model, preset=preprocess, size=size, mean=mean, std=std)
        given: dict[str, Any] = {
            "target": cast("Any", target),
            "sizes": sizes,
            "pool": pool,
            "classes": () if classes is None else tuple(read_names(classes, scores_of(model, inputs).shape[1])),
            "tolerance": tolerance,
        }
        if inputs.dim() == 4:  # noqa: PLR2004  # images
            given["preprocessing"] = prepared.transform if preprocessing == "inside" else str(prepared)
        if out.suffix == ".pt2":
            card = export_pt2(model, inputs, out, **given)
        else:
            card = export_onnx(model, inputs, out, **given, inside=preprocessing == "inside")
        output.answer(card.to_json())
        output.say(str(card))
        output.say(f"\nWritten to {out}.", style="bold")


def _shape(spec: str, weights: str | None, given: str | None) -> str | None:
    """The shape of one sample: what was asked for, else what a converted file was made with."""
    from axiograd.cli.converted import Recipe

    recipe = Recipe.read(spec) or (Recipe.read(weights) if weights else None)
    if given is not None or recipe is None:
        return given
    return ",".join(map(str, recipe.shape))


def show_file(output: Output, path: str) -> bool:
    """Say what an exported file is; whether it is as it was written."""
    from axiograd.export import read

    card = read(path)
    output.answer(card.to_json())
    output.say(str(card))
    return card.intact
