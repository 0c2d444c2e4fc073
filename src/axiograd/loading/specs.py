"""Models by what names them, and example inputs for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from axiograd._names import SPEC_HELP, choose_from
from axiograd._state import like_of
from axiograd._user_code import load, run
from axiograd.errors import ConfigurationError, DataMissingError
from axiograd.loading.converted import BuildRecipe, bare, rebuild
from axiograd.loading.libraries import build, library_of, read_exported
from axiograd.models import get_model, list_models, read_state_dict
from axiograd.models.weights import bare_key, load_into


def load_model(
    spec: str, weights: str | None = None, *, settings: Mapping[str, Any] | None = None, download: bool = False
) -> nn.Module:
    """The model that SPEC names, in eval mode; only a SPEC with a colon runs a user's Python.

    >>> type(load_model("xmlp")).__name__
    'MLP'
    """
    given = dict(settings or {})
    if ":" not in spec and spec.endswith((".safetensors", ".pt2", ".onnx")):
        return _from_file(spec, weights, given)
    recipe = BuildRecipe.read(weights) if weights is not None else None
    if recipe is not None and weights is not None and spec != f"x{recipe.spec}":
        _check_same(spec, recipe, weights, given)
        bare_model = bare(recipe, weights, given) if ":" not in spec else _build(spec, given)
        return rebuild(bare_model, recipe, weights).eval()
    if ":" not in spec:
        if spec not in list_models():
            raise unknown(spec)
        if recipe is not None:
            given = {**recipe.settings, **given}
        if reserved := given.keys() & {"weights", "download", "root"}:
            raise ConfigurationError(
                f"--set {min(reserved)}=…: say --weights, --download, or AXIOGRAD_DATA for a folder."
            )
        return get_model(spec, weights=weights, download=download, **given).eval()
    if library_of(spec) and weights in {None, "default"}:
        return build(spec, given, weights, download=download).eval()
    model = _build(spec, given)
    if weights is not None:
        state = read_state_dict(weights)
        # A model may have a part of its own that is called `module`, which the reader takes for DataParallel's.
        names = {bare_key(key): key for key in model.state_dict()}
        load_into(model, {names.get(key, key): value for key, value in state.items()}, model_name=spec, source=weights)
    return model.eval()


def _from_file(spec: str, weights: str | None, settings: dict[str, Any]) -> nn.Module:
    if spec.endswith(".onnx"):
        raise ConfigurationError(
            f"{spec}: an ONNX file has no gradients here, so it can only be looked at: axiograd check {spec}."
        )
    return read_exported(spec).eval() if spec.endswith(".pt2") else _from_converted(spec, weights, settings)


def unknown(spec: str) -> ConfigurationError:
    """What to say about a SPEC that is not a model: weights, Python without a function, or a near miss."""
    path = Path(spec)
    if path.suffix in {".pt", ".pth", ".tar", ".npz", ".ckpt", ".bin", ".safetensors"} and path.is_file():
        return ConfigurationError(
            f"{spec} holds weights, and does not say of which model: name it, axiograd … SPEC --weights {spec}."
        )
    if path.suffix == ".py":
        return ConfigurationError(f"{spec} is a file of Python: say which function makes the model, {spec}:FUNCTION.")
    return ConfigurationError(f"no model {spec!r}: {choose_from(spec, list_models())}. {SPEC_HELP}")


def _from_converted(spec: str, weights: str | None, settings: dict[str, Any]) -> nn.Module:
    recipe = BuildRecipe.read(spec)
    if recipe is None:
        if not Path(spec).is_file():
            raise DataMissingError(f"there is no file {spec}.")
        raise unknown(spec)
    if weights is not None:
        raise ConfigurationError(f"{spec} has its weights in it: leave --weights {weights} out.")
    if ":" in recipe.spec:
        raise ConfigurationError(
            f"{spec} was converted from {recipe.spec}, and a file of weights runs nobody's Python. "
            f"Name the model: axiograd … {recipe.spec} --weights {spec}, or axiograd.load({recipe.spec!r}, {spec!r})."
        )
    return rebuild(bare(recipe, spec, settings), recipe, spec).eval()


def _check_same(spec: str, recipe: BuildRecipe, weights: str, settings: Mapping[str, Any]) -> None:
    if ":" in spec and recipe.settings.keys() - settings.keys():
        said = " ".join(f"--set {key}={json.dumps(value)}" for key, value in recipe.settings.items())
        raise ConfigurationError(
            f"{weights} was converted with other settings, and a file of weights tells your Python nothing: if you "
            f"trust them, say {said[:300]} (in Python: settings={str(recipe.settings)[:300]})."
        )
    if ":" not in spec and spec != recipe.spec:
        raise ConfigurationError(f"{weights} was converted from {recipe.spec}, not from {spec}.")


def _build(spec: str, settings: Mapping[str, Any]) -> nn.Module:
    """The model with the weights that it is born with."""
    if ":" not in spec:
        return get_model(spec, **settings)
    if library_of(spec):
        return build(spec, settings)
    found = load(spec)
    model = found if isinstance(found, nn.Module) else run(spec, lambda: found(**settings))
    if not isinstance(model, nn.Module):
        raise ConfigurationError(f"{spec} must make a torch.nn.Module, not {type(model).__name__}.")
    return model


def example_input(model: nn.Module, shape: str | None, batch: int = 2) -> Tensor:
    """Random inputs of the given shape of one sample ("3,224,224"), or of one guessed from the first layer.

    >>> example_input(nn.Sequential(nn.Linear(5, 2)), None).shape
    torch.Size([2, 5])
    """
    sizes = guess_shape(model) if shape is None else read_shape(shape)
    return torch.randn(batch, *sizes, generator=torch.Generator().manual_seed(0)).to(like_of(model))


def read_shape(shape: str) -> tuple[int, ...]:
    """The sizes in "3,224,224" or "3x224x224"."""
    try:
        sizes = tuple(int(size) for size in shape.replace("x", ",").split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise ConfigurationError(f"--shape {shape}: expected the sizes of one sample, for example 3,224,224.")
    return sizes


def guess_shape(model: nn.Module) -> tuple[int, ...]:
    """What the model says of itself, or what its first layer with weights takes."""
    if isinstance(known := getattr(model, "input_shape", None), tuple):
        return known
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            return (layer.in_features,)
        if isinstance(layer, nn.Conv1d):
            return (layer.in_channels, 128)
        if isinstance(layer, nn.Conv2d):
            return (layer.in_channels, 224, 224)
        if isinstance(layer, nn.Conv3d):
            return (layer.in_channels, 16, 64, 64)
    raise ConfigurationError("the shape of an input cannot be guessed from the model's layers: give --shape.")
