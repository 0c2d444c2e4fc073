"""Converted and trained models as files: weights in safetensors, and in their header how to rebuild the model.

What rebuilds a converted model is `to_xdnn` on the same architecture, whose calibrated constants are then loaded with
the weights. Nothing in a file is executed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from axiograd._io import load_tensors, save_tensors, writing
from axiograd._state import like_of
from axiograd.datasets import Schema
from axiograd.errors import ConfigurationError, DataMissingError, StorageError
from axiograd.homogeneity import calibrated_layout, to_xdnn
from axiograd.loading import zoo
from axiograd.loading.loaded import Loaded, from_source, library_of
from axiograd.loading.prepared import Prepared
from axiograd.models.recipe import BuildRecipe

T = TypeVar("T")


def save(path: Path, model: nn.Module, recipe: BuildRecipe) -> Path:
    """Write weights and recipe, atomically."""
    with writing(path):
        save_tensors(path, model.state_dict(), recipe.to_metadata())
    return path


def load(file: str, settings: Mapping[str, Any]) -> Loaded:
    """A file that says which model it is of."""
    recipe = BuildRecipe.read(file)
    if recipe is None:
        if not Path(file).is_file():
            raise DataMissingError(f"there is no file {file}.")
        raise zoo.unknown(file)
    if ":" in recipe.spec and (library_of(recipe.spec) is None or recipe.settings):
        raise ConfigurationError(
            f"{file} was converted from {recipe.spec}, and a file of weights runs nobody's Python. "
            f"Name the model: axiograd … {recipe.spec} --weights {file}, or axiograd.load({recipe.spec!r}, {file!r})."
        )
    return replace(_rebuilt(recipe.spec, recipe, file, {**recipe.settings, **settings}), spec=file)


def beside(spec: str, recipe: BuildRecipe, file: str, settings: Mapping[str, Any]) -> Loaded:
    """A model whose weights are such a file: a user's own, whose Python no file runs."""
    if ":" in spec and recipe.settings.keys() - settings.keys():
        said = " ".join(f"--set {key}={json.dumps(value)}" for key, value in recipe.settings.items())
        raise ConfigurationError(
            f"{file} was converted with other settings, and a file of weights tells your Python nothing: if you "
            f"trust them, say {said[:300]} (in Python: settings={str(recipe.settings)[:300]})."
        )
    if ":" not in spec and spec != recipe.spec:
        raise ConfigurationError(f"{file} was converted from {recipe.spec}, not from {spec}.")
    return _rebuilt(spec, recipe, file, settings if ":" in spec else {**recipe.settings, **settings})


def _rebuilt(spec: str, recipe: BuildRecipe, file: str, settings: Mapping[str, Any]) -> Loaded:
    """Convert the bare architecture once more, and load the weights and constants of the file into it."""
    bare = from_source(spec, None, settings)
    example = torch.randn(2, *recipe.shape, generator=torch.Generator().manual_seed(0)).to(like_of(bare.model).dtype)
    if recipe.how == "trained":
        model: nn.Module = bare.model
    elif recipe.how == "calibrate":
        model = calibrated_layout(bare.model, example)
    else:
        model = to_xdnn(bare.model, example, how=recipe.how).model
    state, own = load_tensors(Path(file)), model.state_dict()
    wrong = {name for name in own.keys() & state.keys() if own[name].shape != state[name].shape}
    if wrong := wrong | (own.keys() ^ state.keys()):
        made = "as it was trained" if recipe.how == "trained" else f"converted by {recipe.how}"
        raise ConfigurationError(
            f"{file} does not fit {recipe.spec} {made}: {', '.join(sorted(wrong)[:5])} differ. "
            "Has the model's code changed, or are settings missing (--set)?"
        )
    model.load_state_dict(state)
    return Loaded(
        spec,
        model.eval(),
        recipe.spec,
        trained=True if recipe.weights is not None or recipe.spec.startswith("hf:") else bare.trained,
        recipe=recipe,
        schema=_read(file, lambda: Schema.from_dict(recipe.table)) if recipe.table else bare.schema,
        pixels=_read(file, lambda: Prepared.from_dict(recipe.pixels, grey=recipe.shape[0] == 1))
        if recipe.pixels
        else bare.pixels,
        classes=recipe.classes or bare.classes,
    )


def _read(file: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except (ValueError, TypeError, KeyError, AttributeError, ConfigurationError) as error:
        raise StorageError(f"{file} has a recipe that cannot be read: {str(error)[:200].rstrip('.')}.") from error
