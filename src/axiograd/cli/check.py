"""`axiograd check SPEC`: is this model an X-DNN?"""

from __future__ import annotations

from typing import Annotated

import typer

from axiograd.cli import options
from axiograd.cli.certificates import show_certificate
from axiograd.cli.output import speaking


def check(
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

    The proof goes through the model's operators, not through a list of layers; weights do not matter for it.

    `axiograd check xalexnet`

    `axiograd check my_model.py:build --shape 3,224,224`
    """
    with speaking(as_json=json) as output:
        from axiograd.cli.spec import example_input, load_model
        from axiograd.homogeneity import certify

        model = load_model(spec, weights, settings=options.read_settings(settings), download=download).train(train)
        certificate = certify(model, example_input(model, shape))
        output.answer(certificate.to_json())
        show_certificate(output.console, certificate)
        if not certificate.ok:
            output.note(f"Make it one: axiograd convert {spec} -o FILE.safetensors")
    raise typer.Exit(0 if certificate.ok else 1)
