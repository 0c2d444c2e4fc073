"""Options that several subcommands share."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from axiograd._names import SPEC_HELP
from axiograd.errors import ConfigurationError

#: Headings in --help.
MODEL, METHODS, IMAGES, TABLES = "The model", "How it is attributed", "Images", "Tables"


def complete_models(incomplete: str) -> list[str]:
    """Models whose names begin so, for shells."""
    from axiograd.models import list_models

    return [name for name in list_models() if name.startswith(incomplete)]


def complete_methods(incomplete: str) -> list[str]:
    """Methods, after those that stand before the last comma."""
    from axiograd.attribution.methods import METHODS

    done, comma, last = incomplete.rpartition(",")
    return [f"{done}{comma}{name}" for name in METHODS if name.startswith(last)]


def complete_inputs(incomplete: str) -> list[str]:
    """Data sets; files are the shell's own."""
    from axiograd.datasets import catalogue

    names = dict.fromkeys(entry.loader.split(" ")[0] for entry in catalogue())
    return [name for name in names if name.startswith(incomplete)]


Spec = Annotated[
    str, typer.Argument(metavar="SPEC", help=SPEC_HELP, show_default=False, autocompletion=complete_models)
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="Trained weights: a name that the model knows (`default`), or a file.",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Setting of the model, as num_classes=10; may be repeated.",
        rich_help_panel=MODEL,
    ),
]
Download = Annotated[
    bool, typer.Option("--download", help="Fetch known weights that are not on this machine.", rich_help_panel=MODEL)
]
Shape = Annotated[
    str | None,
    typer.Option(
        help="Sizes of one input sample, as 3,224,224; otherwise guessed from the first layer.", rich_help_panel=MODEL
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON on stdout, everything else on stderr.")]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        "-m",
        metavar="NAME,…",
        autocompletion=complete_methods,
        help="x-gradient, integrated-gradients, input-x-gradient … (`?` lists all); several are shown side by side.  "
        "[default: x-gradient]",
        show_default=False,
        rich_help_panel=METHODS,
    ),
]
Steps = Annotated[
    int,
    typer.Option(help="Steps of integrated-gradients, draws of expected-gradients.", min=1, rich_help_panel=METHODS),
]
Seed = Annotated[int, typer.Option(help="Seed of everything that is random.", rich_help_panel=METHODS)]
Limit = Annotated[int | None, typer.Option(help="Take this many samples and leave the rest.", min=1)]
Batch = Annotated[
    int,
    typer.Option("--batch-size", help="Samples that go through the model together.", min=1, rich_help_panel=METHODS),
]

# What is done to images and tables before the model sees them.
Preprocessing = Annotated[
    str | None,
    typer.Option(
        "--preprocess",
        help="imagenet, squeezenet, tiny-imagenet or pixels ([0, 1]); by default that of known weights, else a guess.",
        show_default=False,
        rich_help_panel=IMAGES,
    ),
]
Size = Annotated[
    int | None, typer.Option(help="Short side and centre crop of images, in pixels.", min=1, rich_help_panel=IMAGES)
]
Mean = Annotated[
    str | None, typer.Option(help="Mean to subtract from [0, 1] pixels, one number or three.", rich_help_panel=IMAGES)
]
Std = Annotated[
    str | None, typer.Option(help="Standard deviation to divide by, one number or three.", rich_help_panel=IMAGES)
]
SkipDamaged = Annotated[
    bool, typer.Option("--skip-damaged", help="Leave images out that cannot be decoded.", rich_help_panel=IMAGES)
]
Masks = Annotated[
    Path | None,
    typer.Option(
        help="Where the objects are: a folder of PNG masks or VOC's XML files in the images' layout, or COCO's JSON.",
        show_default=False,
        rich_help_panel=IMAGES,
    ),
]
Label = Annotated[
    str | None, typer.Option(help="Column of a table that holds the class, not a feature.", rich_help_panel=TABLES)
]
Drop = Annotated[
    str | None, typer.Option(help="Columns of a table that are not features: a,b,c.", rich_help_panel=TABLES)
]
Missing = Annotated[
    str,
    typer.Option(help="Empty cells of a table: error, mean (of the training data) or zero.", rich_help_panel=TABLES),
]
Standardise = Annotated[
    bool,
    typer.Option(
        "--standardise", help="Columns to mean 0 and standard deviation 1 of the training data.", rich_help_panel=TABLES
    ),
]
Statistics = Annotated[
    Path | None,
    typer.Option(
        help="Table of the training data, for --standardise and --missing mean; files of `convert` know it.",
        rich_help_panel=TABLES,
    ),
]
Classes = Annotated[
    Path | None,
    typer.Option(help="File with the model's class names, one per line or as JSON; or `imagenet` for its thousand."),
]


@dataclass(frozen=True)
class PixelOptions:
    """What is done to images."""

    preprocess: Preprocessing = None
    size: Size = None
    mean: Mean = None
    std: Std = None

    @property
    def given(self) -> dict[str, Any]:
        """As `axiograd.cli.inputs.choose` takes them."""
        return {"preset": self.preprocess, "size": self.size, "mean": self.mean, "std": self.std}


@dataclass(frozen=True)
class ReadingOptions(PixelOptions):
    """What is done to images and tables."""

    label: Label = None
    drop: Drop = None
    missing: Missing = "error"
    statistics: Statistics = None
    standardise: Standardise = False


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command in which a parameter that is one of the groups above stands for all of its options."""
    parameters = inspect.signature(command, eval_str=True).parameters
    kinds = {name: one.annotation for name, one in parameters.items()}
    groups = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, PixelOptions)}
    flat: list[inspect.Parameter] = []
    for name, one in parameters.items():
        kept = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.annotation)
        flat += list(inspect.signature(one.annotation).parameters.values()) if name in groups else [kept]
    keyword = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in flat]

    @wraps(command)
    def called(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    called.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]  # where `inspect` and Typer look
    called.__annotations__ = {one.name: one.annotation for one in keyword}
    return called


def read_settings(given: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE pairs; a value is JSON, or else text.

    >>> read_settings(["num_classes=10", "hidden=[8, 4]", "version=1_1"])
    {'num_classes': 10, 'hidden': [8, 4], 'version': '1_1'}
    """
    import json

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


def read_list(given: list[str] | str | None) -> list[str]:
    """Values that are separated by commas or repeat their option.

    >>> read_list(["a,b", "c"])
    ['a', 'b', 'c']
    """
    parts = [given] if isinstance(given, str) else given or []
    return [name.strip() for part in parts for name in part.split(",") if name.strip()]
