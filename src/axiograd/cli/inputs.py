"""What a command is given: the model, how its inputs are prepared, and the samples."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from torch import nn
from typer.models import OptionInfo

from axiograd.cli.classes import ClassNames
from axiograd.cli.converted import BuildRecipe
from axiograd.cli.libraries import about, build, library_of
from axiograd.cli.options import ReadingOptions, read_list, read_settings
from axiograd.cli.prepared import Prepared
from axiograd.cli.preprocess import choose
from axiograd.cli.samples import Samples, check_width, read_samples
from axiograd.cli.spec import load_model
from axiograd.cli.tables import TableOptions
from axiograd.datasets import Preprocess, Schema
from axiograd.errors import ConfigurationError, StorageError
from axiograd.models import list_weights


@dataclass(frozen=True)
class Given:
    """The model and the samples that a command was given, and what is known about its weights."""

    spec: str
    model: nn.Module
    #: The model's name, also where SPEC is a converted file.
    base: str
    #: None where it cannot be told: a user's function may load its weights itself.
    trained: bool | None
    #: The weights are those of a name that we know, and so is how their inputs were prepared.
    known: bool
    #: What its file says: how tables and images are prepared, and what its classes are called.
    recipe: BuildRecipe | None = None
    schema: Schema | None = None
    pixels: Prepared | None = None
    classes: tuple[str, ...] = ()

    @property
    def warning(self) -> str | None:
        """What has to be said wherever the model's answers are shown."""
        if self.trained is not False:
            return None
        return (
            f"{self.spec} has random weights, as none were given by --weights: what it answers, and why, means nothing."
        )

    def class_names(self, file: Path | None, of_data: Sequence[str], n_outputs: int) -> ClassNames:
        """What the model's outputs are called: by the file given, by its own file, or by the data."""
        named = self.classes if self.recipe is None else self.recipe.classes
        if file is None and len(named) == max(n_outputs, 2):
            return ClassNames([(name,) for name in named])
        return ClassNames.find(file, of_data, n_outputs, self.base if self.trained else "")


def read_model(spec: str, weights: str | None, settings: list[str] | None, *, download: bool = False) -> Given:
    """The model, and what its name and its file tell about it."""
    model = load_model(spec, weights, settings=read_settings(settings), download=download)
    recipe = BuildRecipe.read(spec) or (BuildRecipe.read(weights) if weights else None)
    file = spec if weights is None else weights
    base, named = (spec, weights) if recipe is None else (recipe.spec, recipe.weights)
    trained = True if named is not None else (None if ":" in base else False)
    names = {name for each in list_weights(base) for name in (each.name, each.file, "default")}
    pixels = pixels_of(recipe, file)
    classes: tuple[str, ...] = ()
    if library_of(base):
        said, classes = about(base, model if recipe is None else build(base, recipe.settings), named)
        trained = True if base.startswith("hf:") else bool(named)
        pixels = pixels or said
    if spec.endswith(".pt2") and ":" not in spec:
        trained = None
    return Given(spec, model, base, trained, named in names, recipe, schema_of(recipe, file), pixels, classes)


def schema_of(recipe: BuildRecipe | None, path: str | Path) -> Schema | None:
    """How a file's model takes tables, if it does."""
    if recipe is None or not recipe.table:
        return None
    try:
        return Schema.from_dict(recipe.table)
    except (ValueError, TypeError, KeyError, AttributeError, ConfigurationError) as error:
        raise StorageError(f"{path} has a recipe that cannot be read: {str(error)[:200]}") from error


def pixels_of(recipe: BuildRecipe | None, path: str | Path) -> Prepared | None:
    """How a file's model takes images, if it says so."""
    if recipe is None or not recipe.pixels:
        return None
    try:
        return Prepared(Preprocess.from_dict(recipe.pixels), grey=recipe.shape[0] == 1)
    except (ValueError, TypeError, KeyError) as error:
        raise StorageError(f"{path} has a recipe that cannot be read: {str(error)[:200]}") from error


def read_inputs(given: Given, inputs: list[str], reading: ReadingOptions, *, split: str | None = None) -> Samples:
    """The samples, prepared as the options say, or as the model's file says, or as is guessed."""
    pixels = given.pixels
    if pixels is None or any(reading.given.values()):
        pixels = choose(given.base, given.model, known=given.known, **reading.given)
    tables = TableOptions(
        reading.label,
        tuple(read_list(reading.drop)),
        reading.missing,
        reading.standardise,
        reading.statistics or given.schema,
    )
    samples = read_samples(read_list(inputs), pixels, tables, split=split)
    check_width(samples, given.model)
    return samples


def suggestion(call: Mapping[str, Any], command: str, *, inputs_as: str | None = None, **changed: Any) -> str:
    """Another command with every option of a call that it has too: what is suggested can be run as it stands."""
    function = getattr(import_module(f"axiograd.cli.{command}"), command)
    values = {**call, **changed}
    words = ["axiograd", command, str(values["spec"])]
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        option = next((each for each in get_args(parameter.annotation) if isinstance(each, OptionInfo)), None)
        value = values.get(name)
        if option is None or name == "json" or not value or value == parameter.default:
            continue
        # In an annotation, Typer keeps the first name of an option where its default would be.
        flags = [each for each in (option.default, *(option.param_decls or ())) if isinstance(each, str)]
        flag = flags[0] if flags else f"--{name.replace('_', '-')}"
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [flag] if value is True else [flag, str(each)]
    if inputs_as is not None:
        for each in call.get("inputs") or call.get("data") or ():
            words += [inputs_as, str(each)]
    return shlex.join(words)
