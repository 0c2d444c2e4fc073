"""Converted and trained models as files: weights in safetensors, and in their header how to rebuild the model.

What rebuilds a converted model is `to_xdnn` on the same architecture, whose calibrated constants are then loaded with
the weights. Nothing in a file is executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from axiograd._io import load_tensors, save_tensors, writing
from axiograd._state import like_of
from axiograd.errors import ConfigurationError, StorageError
from axiograd.homogeneity import calibrated_layout, to_xdnn
from axiograd.models import get_model
from axiograd.models.recipe import KEY as KEY, BuildRecipe as BuildRecipe  # noqa: PLC0414

#: How many times as many parameters as its file's a model may have (biases that were taken out), and some more.
_MORE, _SMALL = 4, 1_000_000


def save(path: Path, model: nn.Module, recipe: BuildRecipe) -> Path:
    """Write weights and recipe, atomically."""
    with writing(path):
        save_tensors(path, model.state_dict(), recipe.to_metadata())
    return path


def bare(recipe: BuildRecipe, path: str | Path, settings: Mapping[str, Any]) -> nn.Module:
    """The architecture that a recipe names, which is built only if it is about as large as the file's weights."""
    merged = {**recipe.settings, **settings}
    try:
        with torch.device("meta"):
            size = sum(parameter.numel() for parameter in get_model(recipe.spec, **merged).parameters())
    except (TypeError, ValueError, RuntimeError) as error:
        raise StorageError(f"{path}: {recipe.spec} cannot be built with {str(merged)[:200]}: {error}.") from error
    if size > _MORE * sum(tensor.numel() for tensor in load_tensors(Path(path)).values()) + _SMALL:
        raise StorageError(f"{path} asks for {recipe.spec} with {size:,} parameters, and does not hold that many.")
    return get_model(recipe.spec, **merged)


def rebuild(model: nn.Module, recipe: BuildRecipe, path: str | Path) -> nn.Module:
    """Convert the bare architecture once more, and load the weights and constants of the file into it."""
    generator = torch.Generator().manual_seed(0)
    example = torch.randn(2, *recipe.shape, generator=generator).to(like_of(model).dtype)
    if recipe.how == "trained":
        converted: nn.Module = model.eval()
    elif recipe.how == "calibrate":
        converted = calibrated_layout(model.eval(), example)
    else:
        converted = to_xdnn(model.eval(), example, how=recipe.how).model
    state = load_tensors(Path(path))
    own = converted.state_dict()
    wrong = [
        name
        for name in {**own, **state}
        if name not in own or name not in state or own[name].shape != state[name].shape
    ]
    if wrong:
        raise ConfigurationError(
            f"{path} does not fit {recipe.spec} {made(recipe)}: {', '.join(sorted(wrong)[:5])} differ. "
            "Has the model's code changed, or are settings missing (--set)?"
        )
    converted.load_state_dict(state)
    return converted


def made(recipe: BuildRecipe) -> str:
    """How the model of a file came to be, in words."""
    return "as it was trained" if recipe.how == "trained" else f"converted by {recipe.how}"
