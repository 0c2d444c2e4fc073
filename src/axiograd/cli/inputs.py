"""What a command is given: the model, how its inputs are prepared, and the samples."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from torch import nn
from typer.models import OptionInfo

from axiograd._names import choose_from
from axiograd.cli.classes import ClassNames
from axiograd.cli.options import PixelOptions, ReadingOptions, read_list, read_settings
from axiograd.cli.samples import Samples, check_width, read_samples
from axiograd.cli.tables import TableOptions
from axiograd.datasets import CAFFE, IMAGENET, PIXELS, SQUEEZENET, TINY_IMAGENET
from axiograd.errors import ConfigurationError
from axiograd.loading.loaded import Loaded, load
from axiograd.loading.prepared import Prepared
from axiograd.loading.specs import guess_shape

PRESETS = {
    "imagenet": IMAGENET,
    "squeezenet": SQUEEZENET,
    "caffe": CAFFE,
    "tiny-imagenet": TINY_IMAGENET,
    "pixels": PIXELS,
}
#: What the known weights of our models were trained with; the others saw ImageNet as the paper prepares it.
OF_MODEL = {"squeezenet1_1": "squeezenet", "resnet18": "tiny-imagenet", "resnet50": "caffe", "dncnn": "pixels"}
_RGB = 3


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
        return choose(self.base, self.model, known=self.known, stored=self.pixels, **options.given)


def choose(
    spec: str,
    model: nn.Module,
    *,
    known: bool = False,
    stored: Prepared | None = None,
    preset: str | None = None,
    size: int | None = None,
    mean: str | None = None,
    std: str | None = None,
) -> Prepared:
    """What the options say, else what is `stored`, else what the `known` weights were trained with, else a guess.

    >>> print(choose("squeezenet1_1", nn.Conv2d(3, 8, 3), known=True, size=64))
    short side 64, centre crop 64, BGR, values 0 to 255, minus (103.939, 116.779, 123.68)
    """
    if stored is None:
        try:
            shape = guess_shape(model)
        except ConfigurationError:
            shape = (_RGB,)
        named = OF_MODEL.get(spec.removeprefix("x"), "pixels" if shape[0] == 1 else "imagenet")
        stored = Prepared(PRESETS[named], grey=shape[0] == 1, guessed=not known)
    if preset is not None and preset not in PRESETS:
        raise ConfigurationError(f"--preprocess {preset}: {choose_from(preset, PRESETS)}.")
    transform = PRESETS[preset] if preset else stored.transform
    if mean is not None or std is not None:
        centre, spread = _numbers("--mean", mean, 0.0), _numbers("--std", std, 1.0)
        if min(spread) <= 0:
            raise ConfigurationError(f"--std {std}: standard deviations are positive.")
        transform = replace(transform, mean=centre, std=spread, white=1.0, bgr=False)
    if size is not None:
        transform = replace(transform, resize=size, crop=size)
    return Prepared(transform, stored.grey, guessed=stored.guessed and not (preset or mean or std))


def _numbers(option: str, given: str | None, default: float) -> tuple[float, ...]:
    try:
        found = (default,) if given is None else tuple(float(part) for part in given.split(","))
    except ValueError:
        found = ()
    if len(found) not in {1, _RGB}:
        raise ConfigurationError(f"{option} {given}: expected one number or three, for example 0.485,0.456,0.406.")
    return found * _RGB if len(found) == 1 else found


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
