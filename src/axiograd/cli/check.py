"""`axiograd check SPEC`: is this model an X-DNN?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from axiograd.cli import options
from axiograd.cli.certificates import certify_on_random, show_certificate
from axiograd.cli.export import is_ours, show_file
from axiograd.cli.output import Output, speaking
from axiograd.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from axiograd.cli.inputs import Given
    from axiograd.cli.samples import Samples

#: Kinds of violations that the user's own code has to lose first.
_BEYOND_CONVERSION = {"gradient", "export"}
_IMAGES = 4  # dimensions of a batch of them


def check(
    context: typer.Context,
    spec: options.Spec,
    shape: options.Shape = None,
    weights: options.Weights = None,
    settings: options.Settings = None,
    *,
    download: options.Download = False,
    train: Annotated[bool, typer.Option("--train", help="Certify the model in train mode.")] = False,
    bias: Annotated[
        bool, typer.Option("--bias", help="Measure on --examples what the biases carry, and what removing them costs.")
    ] = False,
    examples: Annotated[
        list[str] | None,
        typer.Option("--examples", metavar="INPUT", help="For --bias: images, a folder, a table or a data set."),
    ] = None,
    n_examples: Annotated[int, typer.Option(help="For --bias: how many of them are used.", min=4)] = 200,
    every: Annotated[
        bool, typer.Option("--all", help="List every violation by itself, also those that are alike.")
    ] = False,
    preprocess: options.Preprocessing = None,
    label: options.Label = None,
    classes: options.Classes = None,
    json: options.Json = False,
) -> None:
    """Prove that a model is an X-DNN, F(αx) = αᵏF(x), or name every place that breaks it; exit code 1 if it is not.

    The proof goes through the model's operators, not through a list of layers. Biases that are zero do no harm; one
    of axiograd's models without --weights is checked with biases that are not.

    With --bias the paper's question first: what would removing the biases cost? On real examples, of which one half
    makes the conversions and the other judges them: how much of the output the biases carry, by layer and class, and
    what is left of the answers by strip, carry, calibrate and lift; exit code 0.

    An exported file (.onnx, .pt2) says what it is, and whether it was modified; exit code 1 if it is not.

    `axiograd check xalexnet`

    `axiograd check my_model.py:build --shape 3,224,224`

    `axiograd check resnet18 --weights default --bias --examples photos/`
    """
    if bias != bool(examples):
        raise ConfigurationError("--bias measures on real inputs, and --examples is for it: give both or neither.")
    with speaking(as_json=json) as output:
        if Path(spec).suffix in {".onnx", ".pt2"} and ":" not in spec and (is_ours(spec) or spec.endswith(".onnx")):
            raise typer.Exit(0 if show_file(output, spec) else 1)
        from axiograd.cli.inputs import read_inputs, read_model, suggestion

        given = read_model(spec, weights, settings, download=download)
        if bias and examples:
            show_bias(
                output,
                given,
                read_inputs(given, examples, options.ReadingOptions(preprocess, label=label)),
                n_examples,
                classes,
            )
            raise typer.Exit(0)
        model = given.model.train(train)
        if given.trained is False and given.base == spec:
            _fill_zeros(model)
        if shape is None and given.recipe is not None:
            shape = ",".join(map(str, given.recipe.shape))
        x, certificate = certify_on_random(model, shape)
        output.answer(certificate.to_json())
        show_certificate(output.console, certificate, every=every)
        zero = _zero_biases(model)
        if certificate.ok and zero:
            output.note(f"Biases that are zero now: {len(zero)}, as {zero[0]}; once trained, they would break it.")
        if not certificate.ok and not _BEYOND_CONVERSION & {each.kind for each in certificate.violations}:
            needed = _for_conversion(x, shape)
            output.note(f"Make it one: {suggestion(context.params, 'convert', **needed)}")
            prepared = given.prepared(options.PixelOptions(preprocess, size=needed.get("size")))
            if x.dim() == _IMAGES and prepared.guessed:
                output.note(f"Images will be prepared like this: {prepared}.")
    raise typer.Exit(0 if certificate.ok else 1)


def _zero_biases(model: nn.Module) -> list[str]:
    """Biases that are zero and that nothing carries."""
    return [
        name
        for name, parameter in model.named_parameters()
        if name.endswith("bias") and not parameter.any() and not _is_carried(model, name)
    ]


def _is_carried(model: nn.Module, name: str) -> bool:
    return type(model.get_submodule(name.rpartition(".")[0])).__module__ == "axiograd.layers"


def _for_conversion(x: Tensor, shape: str | None) -> dict[str, Any]:
    """What a conversion needs beside what `check` was given: real examples, and images of the size that was named."""
    from axiograd.cli.convert import placeholder

    size = x.shape[-1] if shape is not None and x.dim() == _IMAGES and x.shape[-1] == x.shape[-2] else None
    return {"out": "FILE.safetensors", "examples": [placeholder(x)], "size": size, "shape": None}


def show_bias(output: Output, given: Given, samples: Samples, n: int, classes: Path | None) -> None:
    """What the biases carry on some samples, and what conversions would cost."""
    import torch

    from axiograd.cli.attributing import labels_of
    from axiograd.cli.convert import spread
    from axiograd.homogeneity import bias_report

    if given.warning:
        output.note(given.warning)
    places, x, source = spread(samples, given.model, n)
    with torch.no_grad():
        n_outputs = given.model.eval()(x[:1]).shape[-1]
    labels = labels_of(samples, places, n_outputs, given.class_names(classes, samples.classes, n_outputs))
    report = bias_report(given.model, x, None if labels is None else torch.tensor(labels))
    output.say(f"{report}\nMeasured on {source}.")
    output.answer(asdict(report) | {"examples": source, "recommendation": report.recommendation})


def _fill_zeros(model: nn.Module) -> None:
    """Parameters that start at zero get a value: the question is about the architecture, not about its first step."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.fill_(0.01)
