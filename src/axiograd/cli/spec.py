"""Models named on the command line, and example inputs for them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from axiograd.errors import ConfigurationError, DataMissingError
from axiograd.models import get_model, list_models

HELP = "One of axiograd's models (see `axiograd models`), package.module:factory, or path/to/file.py:factory."


def load_model(spec: str, weights: str | None = None) -> nn.Module:
    """The model that SPEC names, in eval mode; only a SPEC with a colon runs a user's Python.

    >>> type(load_model("xmlp")).__name__
    'MLP'
    """
    if ":" not in spec:
        if spec not in list_models():
            raise ConfigurationError(f"no model {spec!r}. {HELP}")
        return get_model(spec, weights=weights).eval()
    source, _, name = spec.rpartition(":")
    module = _from_file(Path(source)) if source.endswith(".py") else _from_package(source)
    factory: Callable[[], Any] | None = getattr(module, name, None)
    if factory is None:
        raise ConfigurationError(f"{source} has no {name!r}.")
    model = factory if isinstance(factory, nn.Module) else factory()
    if not isinstance(model, nn.Module):
        raise ConfigurationError(f"{spec} made a {type(model).__name__}: expected a torch.nn.Module.")
    if weights is not None:
        model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return model.eval()


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise DataMissingError(f"there is no file {path}.")
    name = f"axiograd_spec_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path} cannot be read as Python.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _from_package(name: str) -> Any:
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{name} cannot be imported: {error}.") from error
    finally:
        sys.path.remove("")


def example_input(model: nn.Module, shape: str | None, batch: int = 2) -> Tensor:
    """Random inputs of the given shape of one sample ("3,224,224"), or of one guessed from the first layer.

    >>> example_input(nn.Sequential(nn.Linear(5, 2)), None).shape
    torch.Size([2, 5])
    """
    sizes = _guess(model) if shape is None else _read(shape)
    parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, *sizes, generator=generator).to(parameter.device, parameter.dtype)


def _read(shape: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(size) for size in shape.replace("x", ",").split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise ConfigurationError(f"--shape {shape}: expected the sizes of one sample, for example 3,224,224.")
    return sizes


def _guess(model: nn.Module) -> tuple[int, ...]:
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
