"""What a command is given: the model, how its inputs are prepared, and the samples."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from typer.models import OptionInfo

from axiograd.cli.classes import ClassNames
from axiograd.cli.options import PixelOptions, ReadingOptions, read_list, read_settings
from axiograd.cli.preprocess import choose
from axiograd.cli.samples import Samples, check_width, read_samples
from axiograd.cli.tables import TableOptions
from axiograd.loading.loaded import Loaded, load
from axiograd.loading.prepared import Prepared


class Given(Loaded):
    """The model that a command was given, and what its answers are called."""

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
        if file is None and len(self.classes) == max(n_outputs, 2):
            return ClassNames([(name,) for name in self.classes])
        return ClassNames.find(file, of_data, n_outputs, self.base if self.trained else "")

    def prepared(self, options: PixelOptions) -> Prepared:
        """How images become inputs: as the options say, or else as the model's file says, or as is guessed."""
        if self.pixels is not None and not any(options.given.values()):
            return self.pixels
        return choose(self.base, self.model, known=self.known, **options.given)


def read_model(spec: str, weights: str | None, settings: list[str] | None, *, download: bool = False) -> Given:
    """The model, and what its name and its file tell about it."""
    return Given(**vars(load(spec, weights, settings=read_settings(settings), download=download)))


def read_inputs(given: Given, inputs: list[str], reading: ReadingOptions, *, split: str | None = None) -> Samples:
    """The samples, prepared as the options say, or as the model's file says, or as is guessed."""
    tables = TableOptions(
        reading.label,
        tuple(read_list(reading.drop)),
        reading.missing,
        reading.standardise,
        reading.statistics or given.schema,
    )
    samples = read_samples(read_list(inputs), given.prepared(reading), tables, split=split)
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
