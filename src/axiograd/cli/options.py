"""Options that several subcommands share, and commands that are suggested."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.models import OptionInfo

from axiograd._names import SPEC_HELP
from axiograd.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import Tensor

    from axiograd.loading import Loaded

Spec = Annotated[str, typer.Argument(metavar="SPEC", help=SPEC_HELP, show_default=False)]
Weights = Annotated[
    str | None,
    typer.Option(help="Trained weights: a name that the model knows (`default`), or a file.", show_default=False),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Setting of the model, as num_classes=10; may be repeated."),
]
Download = Annotated[bool, typer.Option("--download", help="Fetch known weights that are not on this machine.")]
Device = Annotated[str, typer.Option(help="Where the model runs: cpu, cuda, cuda:1, mps.")]
Shape = Annotated[
    str | None,
    typer.Option(
        help="Sizes of one input sample, as 3,224,224; otherwise guessed from the layers.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON on stdout, everything else on stderr.")]
Steps = Annotated[int, typer.Option(help="Steps of integrated-gradients, draws of expected-gradients.", min=1)]
Limit = Annotated[int | None, typer.Option(help="Take this many samples and leave the rest.", min=1)]
Batch = Annotated[int, typer.Option("--batch-size", help="Samples that go through the model together.", min=1)]
Target = Annotated[str, typer.Option(help="predicted, label, or a class by number or name.")]
Preprocess = Annotated[
    str | None,
    typer.Option(
        help="How images become inputs where the model does not say it: imagenet, squeezenet, caffe, tiny-imagenet, "
        "pixels ([0, 1]), or size=64,mean=0.5,std=0.5,grey, or both.",
        show_default=False,
    ),
]
Masks = Annotated[
    Path | None,
    typer.Option(
        help="Where the objects are: a folder of PNG masks or VOC's XML files in the images' layout, or COCO's JSON.",
        show_default=False,
    ),
]
Examples = Annotated[
    list[str] | None,
    typer.Option(
        "--examples", metavar="INPUT", help="Real inputs: images, folders, a table or a data set; repeatable."
    ),
]


def read_settings(given: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE pairs; a value is JSON, or else text.

    >>> read_settings(["num_classes=10", "hidden=[8, 4]", "version=1_1"])
    {'num_classes': 10, 'hidden': [8, 4], 'version': '1_1'}
    """
    found: dict[str, Any] = {}
    for pair in given or ():
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise ConfigurationError(f"--set {pair}: expected NAME=VALUE, for example num_classes=10.")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


def read_list(given: list[str] | None) -> list[str]:
    """Values that are separated by commas or repeat their option.

    >>> read_list(["a,b", "c"])
    ['a', 'b', 'c']
    """
    return [name.strip() for part in given or () for name in part.split(",") if name.strip()]


def read_model(
    spec: str, weights: str | None, settings: list[str] | None, *, download: bool = False, device: str = "cpu"
) -> Loaded:
    """The model on its device, and what its name and its file tell about it."""
    import torch

    from axiograd.loading import load

    try:
        place = torch.zeros(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        raise ConfigurationError(f"--device {device}: {str(error).splitlines()[0].rstrip('.')}.") from error
    loaded = load(spec, weights, settings=read_settings(settings), download=download)
    loaded.model.to(place)
    return loaded


def refuse(given: Mapping[str, Any], why: str) -> None:
    """Options that say nothing about what is done.

    >>> refuse({"--versus": "x", "--pool": None}, "these are photos")
    Traceback (most recent call last):
    axiograd.errors.ConfigurationError: --versus x does not apply: these are photos.
    """
    for name, value in given.items():
        if value:
            said = f" {value}" if isinstance(value, str | int | Path) else ""
            raise ConfigurationError(f"{name}{said} does not apply: {why}.")


def placeholder(inputs: Tensor) -> str:
    """What stands for real inputs in a command that is suggested."""
    return "FOLDER" if inputs.dim() == 4 else "TABLE.csv"  # noqa: PLR2004  # a batch of images


def suggestion(call: Mapping[str, Any], command: str, **changed: Any) -> str:
    """Another command with every option of a call that it has too: what is suggested can be run as it stands."""
    function = getattr(import_module(f"axiograd.cli.{command}"), command)
    values = {**call, **changed}
    words = ["axiograd", command, str(values["spec"])]
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        parts = get_args(parameter.annotation)
        option = next((each for each in parts if isinstance(each, OptionInfo)), None)
        value = values.get(name)
        if name == "inputs" and value:
            words += [str(each) for each in value]
        if option is None or name in {"json", "as_json"} or not value or value == parameter.default:
            continue
        # In an annotation, Typer keeps the first name of an option where its default would be.
        flags = [each for each in (option.default, *(option.param_decls or ())) if isinstance(each, str)]
        flag = flags[0] if flags else f"--{name.replace('_', '-')}"
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [flag] if value is True else [flag, str(each)]
    return shlex.join(words)
