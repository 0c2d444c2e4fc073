"""A model with what its name and its file tell about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from torch import nn

from axiograd.datasets import Schema
from axiograd.errors import ConfigurationError, StorageError
from axiograd.loading.converted import BuildRecipe
from axiograd.loading.libraries import about, library_of
from axiograd.loading.prepared import Prepared
from axiograd.loading.specs import load_model
from axiograd.models import list_weights


@dataclass(frozen=True)
class Loaded:
    """A model, how its inputs are prepared, and what its outputs are called, as far as its name or its file say so."""

    spec: str
    model: nn.Module
    #: The model's name, also where SPEC is a file.
    base: str
    #: None where it cannot be told: a user's function may load its weights itself.
    trained: bool | None
    #: The weights are those of a name that we know, and so is how their inputs were prepared.
    known: bool
    #: How the file's model was made.
    recipe: BuildRecipe | None = None
    #: How rows of a table become inputs.
    schema: Schema | None = None
    #: How images become inputs.
    pixels: Prepared | None = None
    classes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        parts = [type(self.model).__name__]
        parts += [f"made from {self.base}"] if self.base != self.spec else []
        parts += [str(self.schema)] if self.schema is not None else []
        parts += [str(self.pixels)] if self.pixels is not None else []
        parts += [f"{len(self.classes)} classes"] if self.classes else []
        return f"Loaded({self.spec}: {'; '.join(parts)})"


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
    spec, weights = fspath(spec), None if weights is None else fspath(weights)
    model = load_model(spec, weights, settings=settings, download=download)
    recipe = BuildRecipe.read(spec) or (BuildRecipe.read(weights) if weights else None)
    file = spec if weights is None else weights
    base, named = (spec, weights) if recipe is None else (recipe.spec, recipe.weights)
    trained = True if named is not None else (None if ":" in base else False)
    names = {name for each in list_weights(base) for name in (each.name, each.file, "default")}
    pixels, classes = _pixels(recipe, file), recipe.classes if recipe is not None else ()
    if library_of(base):
        trained = True if base.startswith("hf:") else bool(named)
        if recipe is None:
            pixels, classes = about(base, model, named)
    if spec.endswith(".pt2") and ":" not in spec:
        trained = None
    return Loaded(spec, model, base, trained, named in names, recipe, schema_of(recipe, file), pixels, classes)


def schema_of(recipe: BuildRecipe | None, path: str | Path) -> Schema | None:
    """How a file's model takes tables, if it does."""
    if recipe is None or not recipe.table:
        return None
    try:
        return Schema.from_dict(recipe.table)
    except (ValueError, TypeError, KeyError, AttributeError, ConfigurationError) as error:
        raise StorageError(f"{path} has a recipe that cannot be read: {str(error)[:200].rstrip('.')}.") from error


def _pixels(recipe: BuildRecipe | None, path: str | Path) -> Prepared | None:
    """How a file's model takes images, if it says so."""
    if recipe is None or not recipe.pixels:
        return None
    try:
        return Prepared.from_dict(recipe.pixels, grey=recipe.shape[0] == 1)
    except (ValueError, TypeError, KeyError) as error:
        raise StorageError(f"{path} has a recipe that cannot be read: {str(error)[:200].rstrip('.')}.") from error
