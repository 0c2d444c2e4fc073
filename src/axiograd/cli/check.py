"""`axiograd check SPEC`: is this model an X-DNN?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from axiograd.cli import options
from axiograd.cli.certificates import certify_on_random, show_certificate
from axiograd.cli.output import Output, speaking

if TYPE_CHECKING:
    from torch import nn

    from axiograd.loading import Loaded

#: Kinds of violations that the user's own code has to lose first.
_BEYOND_CONVERSION = {"gradient", "export"}
_EXAMPLES = 200


def check(
    context: typer.Context,
    spec: options.Spec,
    examples: options.Examples = None,
    shape: options.Shape = None,
    weights: options.Weights = None,
    settings: options.Settings = None,
    preprocess: options.Preprocess = None,
    download: options.Download = False,
    every: Annotated[
        bool, typer.Option("--all", help="List every violation by itself, also those that are alike.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Prove that a model is an X-DNN, F(αx) = αᵏF(x), or name every place that breaks it; exit code 1 if it is not.

    The proof goes through the model's operators, not through a list of layers. Biases that are zero do no harm; one
    of axiograd's models without --weights is checked with biases that are not.

    With --examples the question is another one: what would removing the biases cost? How much of the output they carry,
    by layer and class, and what is left of the answers by strip, carry, calibrate and lift; exit code 0.

    An exported file (.onnx, .pt2) says what it is.

    `axiograd check xalexnet`

    `axiograd check my_model.py:build --shape 3,64,64`

    `axiograd check resnet18 --weights default --examples photos/`
    """
    with speaking(as_json=json) as output:
        if ":" not in spec and _is_export(spec):
            _show_file(output, spec)
            raise typer.Exit(0)
        loaded = options.read_model(spec, weights, settings, download=download)
        if examples:
            _show_costs(output, loaded, examples, preprocess)
            raise typer.Exit(0)
        options.refuse({"--preprocess": preprocess}, "without --examples nothing is prepared")
        if loaded.trained is False and loaded.base == spec:
            _fill_zeros(loaded.model)
        x, certificate = certify_on_random(loaded, shape)
        output.answer(certificate.to_json())
        show_certificate(output.console, certificate, every=every)
        if certificate.ok and (zero := _zero_biases(loaded.model)):
            output.note(f"Biases that are zero now: {len(zero)}, as {zero[0]}; once trained, they would break it.")
        if not certificate.ok and not _BEYOND_CONVERSION & {each.kind for each in certificate.violations}:
            placeholder = options.placeholder(x)
            made = options.suggestion(
                context.params, "convert", out="x.safetensors", examples=[placeholder], shape=None, every=False
            )
            output.note(f"Make it one, where {placeholder} has 32 real inputs or more: {made}")
    raise typer.Exit(0 if certificate.ok else 1)


def _zero_biases(model: nn.Module) -> list[str]:
    """Biases that are zero and that nothing carries."""
    return [
        name
        for name, parameter in model.named_parameters()
        if name.endswith("bias")
        and not parameter.any()
        and type(model.get_submodule(name.rpartition(".")[0])).__module__ != "axiograd.layers"
    ]


def _fill_zeros(model: nn.Module) -> None:
    """Parameters that start at zero get a value: the question is about the architecture, not about its first step."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.fill_(0.01)


def _show_costs(output: Output, loaded: Loaded, examples: list[str], preprocess: str | None) -> None:
    """What the biases carry on some samples, and what conversions would cost."""
    import torch

    from axiograd.homogeneity import bias_report
    from axiograd.pipeline import read_samples
    from axiograd.pipeline.samples import examples_of

    if loaded.warning:
        output.note(loaded.warning)
    samples = read_samples(loaded, examples, preprocess=preprocess)
    places, x, source = examples_of(samples, loaded, _EXAMPLES)
    with torch.no_grad():
        n = loaded.model(x[:1]).shape[-1]
    labels = samples.labels_of(loaded, n)
    report = bias_report(loaded.model, x, None if labels is None else torch.tensor([labels[i] for i in places]))
    output.say(f"{report}\nMeasured on {source}.")
    output.answer(asdict(report) | {"examples": source, "recommendation": report.recommendation})


def _is_export(path: str) -> bool:
    """Whether a file carries a card, as those of `axiograd export` do; other ONNX files are told so."""
    if not path.endswith((".onnx", ".pt2")):
        return False
    from axiograd.errors import AxiogradError
    from axiograd.export import read

    try:
        read(path)
    except AxiogradError:
        return path.endswith(".onnx") or not Path(path).is_file()
    return True


def _show_file(output: Output, path: str) -> None:
    from axiograd.export import read

    card = read(path)
    output.answer(card.to_json())
    output.say(str(card))
