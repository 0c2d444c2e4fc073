"""`axiograd export SPEC -o FILE`: prediction, exact attribution and proof in one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from axiograd.cli import options
from axiograd.cli.output import Output, speaking
from axiograd.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import Tensor

    from axiograd.loading import Loaded

_IMAGES = 4  # dimensions of a batch of them


def export(
    spec: options.Spec,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write, FILE.onnx or FILE.pt2.", show_default=False)
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Folder for a page on which the model explains photos and the camera.")
    ] = None,
    onnxruntime_web: Annotated[
        Path | None,
        typer.Option(help="The npm package onnxruntime-web as a .tgz file, for the page; else --download fetches it."),
    ] = None,
    target: Annotated[
        Literal["index", "weights"],
        typer.Option(help="What the file is asked for: a class per sample, or a weight per output."),
    ] = "index",
    pool: Annotated[
        int | None, typer.Option(help="Also give attributions summed over windows of this many pixels.", min=1)
    ] = None,
    preprocessing: Annotated[
        Literal["inside", "outside"],
        typer.Option(help="inside: the file takes uint8 images of any size; outside: what the model takes."),
    ] = "outside",
    sizes: Annotated[bool, typer.Option("--sizes", help="Leave height and width of images free.")] = False,
    shape: options.Shape = None,
    weights: options.Weights = None,
    settings: options.Settings = None,
    preprocess: options.Preprocess = None,
    download: options.Download = False,
    as_json: options.Json = False,
) -> None:
    """Write a model that is an X-DNN, with its attribution and its certificate, as one ONNX or .pt2 file.

    The file takes the model's inputs and a target, and gives the output, the attribution, and the gap between the two
    sums. It is run and compared with PyTorch before it is kept. `axiograd check FILE.onnx` says what a file is.

    `axiograd export x.safetensors -o model.onnx`

    `axiograd export x.safetensors -o model.onnx --preprocessing inside --pool 8`

    `axiograd export x.safetensors --page live/` and `python -m http.server -d live`
    """
    _check(out, page, {"--preprocessing": preprocessing if preprocessing == "inside" else None})
    if out is None:
        options.refuse({"--pool": pool, "--sizes": sizes}, "the page has its own, say -o FILE.onnx for a file")
    if page is None:
        options.refuse({"--onnxruntime-web": onnxruntime_web}, "it is for a page, say --page FOLDER too")
    with speaking(as_json=as_json) as output:
        from axiograd.export import export_onnx, export_page, export_pt2

        loaded = options.read_model(spec, weights, settings, download=download)
        inputs, prepared = _inputs(loaded, shape, preprocess), loaded.prepared(preprocess)
        if loaded.warning:
            output.warn("Untrained", loaded.warning)
        card = None
        if out is not None:
            wanted: dict[str, Any] = {"target": target, "sizes": sizes, "pool": pool, "classes": loaded.classes}
            if inputs.dim() == _IMAGES:
                wanted["preprocessing"] = prepared.preprocess if preprocessing == "inside" else str(prepared)
            elif loaded.schema is not None:
                wanted["preprocessing"] = json.dumps(loaded.schema.to_dict(), ensure_ascii=False)
            if out.suffix == ".onnx":
                wanted["inside"] = preprocessing == "inside"
            card = (export_pt2 if out.suffix == ".pt2" else export_onnx)(loaded.model, inputs, out, **wanted)
        if page is not None:
            of_page = export_page(
                loaded.model,
                inputs,
                page,
                preprocessing=prepared.preprocess,
                name=loaded.base,
                classes=loaded.classes,
                onnxruntime_web=onnxruntime_web,
                download=download,
            )
            card = card or of_page
        _say(output, card, out, page)


def _check(out: Path | None, page: Path | None, inside: dict[str, Any]) -> None:
    if out is None and page is None:
        raise ConfigurationError("say what to write: -o FILE.onnx, -o FILE.pt2, or --page FOLDER.")
    if out is not None and out.suffix not in {".onnx", ".pt2"}:
        raise ConfigurationError(f"-o {out}: the file's name ends in .onnx or .pt2.")
    if out is None or out.suffix == ".pt2":
        options.refuse(inside, "preprocessing is put inside ONNX files only")


def _say(output: Output, card: Any, out: Path | None, page: Path | None) -> None:
    output.answer(card.to_json())
    output.say(str(card))
    if out is not None:
        output.say(f"\nWritten to {out}.", style="bold")
    if page is not None:
        where = f"python -m http.server -d {page}, then http://localhost:8000"
        output.say(f"\nA page in {page}: {where}.", style="bold")


def _inputs(loaded: Loaded, shape: str | None, preprocess: str | None) -> Tensor:
    """Random inputs: of the shape that is said, else of the size that images are prepared in, if the model takes it."""
    from axiograd.datasets import Preprocess
    from axiograd.loading.shapes import example_input, read_shape, takes

    sizes = read_shape(shape) or loaded.shape
    transform = loaded.prepared(preprocess).transform
    if shape is None and len(sizes) == _IMAGES - 1 and isinstance(transform, Preprocess) and transform.crop is not None:
        prepared = (sizes[0], transform.crop, transform.crop)
        sizes = prepared if takes(loaded.model, prepared) else sizes
    return example_input(loaded.model, sizes)
