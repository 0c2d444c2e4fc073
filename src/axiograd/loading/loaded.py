"""A model with what its name and its file tell about it, and where each kind of name is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from torch import nn

from axiograd.datasets import IMAGENET, PIXELS, Schema
from axiograd.errors import ConfigurationError
from axiograd.loading.prepared import Prepared
from axiograd.loading.shapes import guess_shape, image_shape
from axiograd.models.recipe import BuildRecipe

#: The side at which a network that takes images of any size is given them.
_USUAL = 224
#: Libraries whose models have names, as in timm:resnet18.
LIBRARIES = ("timm", "torchvision", "hf")


@dataclass(frozen=True)
class Loaded:
    """A model, how its inputs are prepared, and what its outputs are called, as far as its name or its file say so."""

    spec: str
    model: nn.Module
    #: The model's name, also where SPEC is a file.
    base: str
    #: None where it cannot be told: a user's function may load its weights itself.
    trained: bool | None
    #: How the file's model was made.
    recipe: BuildRecipe | None = None
    #: How rows of a table become inputs.
    schema: Schema | None = None
    #: How images become inputs.
    pixels: Prepared | None = None
    classes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample: as the file says, or as is guessed."""
        return guess_shape(self.model) if self.recipe is None else self.recipe.shape

    @property
    def warning(self) -> str | None:
        """What has to be said wherever the answers of a model without trained weights are shown."""
        if self.trained is not False:
            return None
        return f"{self.spec} has random weights, as no others were given: what it answers, and why, means nothing."

    def prepared(self, said: str | None = None) -> Prepared:
        """How images become inputs: as is said, else as the file or the name says, else a guess.

        >>> print(load("xsqueezenet1_1").prepared("squeezenet,size=64"))
        short side 64, centre crop 64, BGR, values 0 to 255, minus (103.939, 116.779, 123.68)
        """
        before = self.pixels
        if before is None:
            channels, *sides = image_shape(self.model) or (3, _USUAL)
            transform = PIXELS if channels == 1 else IMAGENET
            if sides[0] != _USUAL:
                transform = replace(transform, resize=sides[0], crop=sides[0])
            before = Prepared(transform, grey=channels == 1, guessed=True)
        return before if said is None else Prepared.read(said, before)

    def __repr__(self) -> str:
        parts = [type(self.model).__name__]
        parts += [f"made from {self.base}"] if self.base != self.spec else []
        parts += [str(self.schema)] if self.schema is not None else []
        parts += [str(self.pixels)] if self.pixels is not None else []
        parts += [f"{len(self.classes)} classes"] if self.classes else []
        return f"Loaded({self.spec}: {'; '.join(parts)})"


def library_of(spec: str) -> str | None:
    """The library that a SPEC names, as in timm:resnet18.

    >>> library_of("timm:resnet18"), library_of("net.py:build"), library_of("resnet18")
    ('timm', None, None)
    """
    prefix, colon, _ = spec.partition(":")
    return prefix if colon and prefix in LIBRARIES else None


def load(
    spec: str | PathLike[str],
    weights: str | PathLike[str] | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    download: bool = False,
) -> Loaded:
    """What the commands call SPEC, in Python: a file that `axiograd convert` or `train` wrote, or a model by its name.

    `settings` are what the model is built with, as `--set` gives them. Files are read without executing anything; only
    `package.module:factory` and `file.py:factory` run Python, and nothing is downloaded unless `download` is true.

    >>> loaded = load("xmlp", settings={"in_channels": 4, "hidden": (8,), "num_classes": 2})
    >>> loaded.model.training, loaded.schema
    (False, None)
    """
    from axiograd.loading import converted  # which loads the model that it converts anew

    spec, weights = fspath(spec), None if weights is None else fspath(weights)
    given = dict(settings or {})
    if ":" not in spec and Path(spec).suffix == ".safetensors":
        if weights is not None:
            raise ConfigurationError(f"{spec} has its weights in it: leave --weights {weights} out.")
        return converted.load(spec, given)
    recipe = None if weights is None else BuildRecipe.read(weights)
    if recipe is None or weights is None or spec == f"x{recipe.spec}":
        return from_source(spec, weights, given if recipe is None else {**recipe.settings, **given}, download=download)
    return converted.beside(spec, recipe, weights, given)


def from_source(spec: str, weights: str | None, settings: Mapping[str, Any], *, download: bool = False) -> Loaded:
    """A model by its name, one file of this package for each kind of name."""
    from axiograd.loading import exported, hugging_face, own_code, timm_models, torchvision_models, zoo

    if ":" not in spec:
        if Path(spec).suffix in {".pt2", ".onnx"}:
            return exported.load(spec)
        return zoo.load(spec, weights, settings, download=download)
    library = library_of(spec)
    if library == "timm":
        return timm_models.load(spec, weights, settings)
    if library == "torchvision":
        return torchvision_models.load(spec, weights, settings)
    if library == "hf":
        return hugging_face.load(spec, weights, settings, download=download)
    return own_code.load(spec, weights, settings)
