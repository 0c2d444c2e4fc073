"""`axiograd check SPEC`: is this model an X-DNN?"""

from __future__ import annotations

from typing import Annotated

import typer

from axiograd.cli.spec import HELP, example_input, load_model
from axiograd.homogeneity import certify


def check(
    spec: Annotated[str, typer.Argument(help=HELP)],
    shape: Annotated[str | None, typer.Option(help="Sizes of one input sample, for example 3,224,224.")] = None,
    weights: Annotated[str | None, typer.Option(help="Weights: a name that the model knows, or a file.")] = None,
    *,
    train: Annotated[bool, typer.Option("--train", help="Certify the model in train mode.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the certificate as JSON.")] = False,
) -> None:
    """Prove that a model is homogeneous, or name every place that breaks it; exit code 1 if it is not.

    Example: `axiograd check xalexnet`
    """
    model = load_model(spec, weights).train(train)
    certificate = certify(model, example_input(model, shape))
    print(certificate.to_json() if json else certificate)
    raise typer.Exit(0 if certificate.ok else 1)
