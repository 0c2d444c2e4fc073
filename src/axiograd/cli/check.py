"""`axiograd check SPEC`: is this model an X-DNN?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from axiograd.cli import options
from axiograd.cli.certificates import show_certificate
from axiograd.cli.export import show_file
from axiograd.cli.output import speaking

if TYPE_CHECKING:
    from torch import nn


def check(
    context: typer.Context,
    spec: options.Spec,
    shape: options.Shape = None,
    weights: options.Weights = None,
    settings: options.Settings = None,
    *,
    download: options.Download = False,
    train: Annotated[bool, typer.Option("--train", help="Certify the model in train mode.")] = False,
    json: options.Json = False,
) -> None:
    """Prove that a model is an X-DNN, F(αx) = αᵏF(x), or name every place that breaks it; exit code 1 if it is not.

    The proof goes through the model's operators, not through a list of layers. Biases that are zero do no harm; one
    of axiograd's models without --weights is checked with biases that are not.

    An exported file (.onnx, .pt2) says what it is, and whether it is as it was written; exit code 1 if it is not.

    `axiograd check xalexnet`

    `axiograd check my_model.py:build --shape 3,224,224`
    """
    with speaking(as_json=json) as output:
        if Path(spec).suffix in {".onnx", ".pt2"} and ":" not in spec:
            raise typer.Exit(0 if show_file(output, spec) else 1)
        from axiograd.cli.inputs import read_model, suggestion
        from axiograd.cli.spec import example_input
        from axiograd.homogeneity import certify

        given = read_model(spec, weights, settings, download=download)
        model = given.model.train(train)
        if given.trained is False and given.base == spec:
            _fill_zeros(model)
        certificate = certify(model, example_input(model, shape))
        output.answer(certificate.to_json())
        show_certificate(output.console, certificate)
        zero = [name for name, p in model.named_parameters() if name.endswith("bias") and not p.any()]
        if certificate.ok and zero:
            output.note(f"{len(zero)} biases are zero at present, as {zero[0]}; once trained, they would break it.")
        if not certificate.ok:
            output.note(f"Make it one: {suggestion(context.params, 'convert', out='FILE.safetensors')}")
    raise typer.Exit(0 if certificate.ok else 1)


def _fill_zeros(model: nn.Module) -> None:
    """Parameters that start at zero get a value: the question is about the architecture, not about its first step."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.fill_(0.01)
