"""Models named on the command line, and example inputs for them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from axiograd.cli.converted import Recipe, rebuild
from axiograd.cli.options import SPEC_HELP
from axiograd.errors import AxiogradError, ConfigurationError, DataMissingError
from axiograd.models import get_model, list_models, read_state_dict
from axiograd.models._checkpoint import bare_key, load_into

T = TypeVar("T")


def load_model(
    spec: str, weights: str | None = None, *, settings: Mapping[str, Any] | None = None, download: bool = False
) -> nn.Module:
    """The model that SPEC names, in eval mode; only a SPEC with a colon runs a user's Python.

    >>> type(load_model("xmlp")).__name__
    'MLP'
    """
    given = dict(settings or {})
    if ":" not in spec and spec.endswith(".safetensors"):
        return _from_converted(spec, weights, given)
    recipe = Recipe.read(weights) if weights is not None else None
    if recipe is not None and weights is not None and spec != f"x{recipe.spec}":
        _check_same(spec, recipe, weights)
        return rebuild(_build(spec, {**recipe.settings, **given}), recipe, weights).eval()
    if ":" not in spec:
        if spec not in list_models():
            raise ConfigurationError(f"no model {spec!r}. {SPEC_HELP}")
        if recipe is not None:
            given = {**recipe.settings, **given}
        try:
            return get_model(spec, weights=weights, download=download, **given).eval()
        except DataMissingError as error:
            raise DataMissingError(str(error).replace("pass download=True", "say --download")) from error
    model = _build(spec, given)
    if weights is not None:
        state = read_state_dict(weights)
        # A model may have a part of its own that is called `module`, which the reader takes for DataParallel's.
        names = {bare_key(key): key for key in model.state_dict()}
        load_into(model, {names.get(key, key): value for key, value in state.items()}, model_name=spec, source=weights)
    return model.eval()


def _from_converted(spec: str, weights: str | None, settings: dict[str, Any]) -> nn.Module:
    recipe = Recipe.read(spec)
    if recipe is None:
        if not Path(spec).is_file():
            raise DataMissingError(f"there is no file {spec}.")
        raise ConfigurationError(
            f"{spec} holds weights and does not say of which model: name it, axiograd … SPEC --weights {spec}."
        )
    if weights is not None:
        raise ConfigurationError(f"{spec} has its weights in it: leave --weights {weights} out.")
    if ":" in recipe.spec:
        raise ConfigurationError(
            f"{spec} was converted from {recipe.spec}, and a file of weights runs nobody's Python. "
            f"Name the model: axiograd … {recipe.spec} --weights {spec}."
        )
    return rebuild(_build(recipe.spec, {**recipe.settings, **settings}), recipe, spec).eval()


def _check_same(spec: str, recipe: Recipe, weights: str) -> None:
    if ":" not in spec and spec != recipe.spec:
        raise ConfigurationError(f"{weights} was converted from {recipe.spec}, not from {spec}.")


def _build(spec: str, settings: Mapping[str, Any]) -> nn.Module:
    """The model with the weights that it is born with."""
    if ":" not in spec:
        return get_model(spec, **settings)
    source, _, name = spec.rpartition(":")
    module = _from_file(Path(source)) if source.endswith(".py") else _from_package(source)
    factory: Callable[..., Any] | None = getattr(module, name, None)
    if factory is None:
        raise ConfigurationError(f"{source} has no {name!r}.")
    if not isinstance(factory, nn.Module) and not callable(factory):
        raise ConfigurationError(
            f"{spec} is of type {type(factory).__name__}: expected a model or a function that makes it."
        )
    model = factory if isinstance(factory, nn.Module) else _users(spec, lambda: factory(**settings))
    if not isinstance(model, nn.Module):
        raise ConfigurationError(f"{spec} made a {type(model).__name__}: expected a torch.nn.Module.")
    return model


def _users(what: str, run: Callable[[], T]) -> T:
    """Run a user's code; whatever it raises is said in a sentence, with the line that it comes from."""
    try:
        return run()
    except AxiogradError:
        raise
    except (Exception, SystemExit) as error:
        file = what.rpartition(":")[0] if ":" in what else what
        frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == Path(file).name]
        line = f", line {frames[-1].lineno}" if frames and not isinstance(error, SyntaxError) else ""
        raise ConfigurationError(f"{what} raised {type(error).__name__}{line}: {error}") from error


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise DataMissingError(f"there is no file {path}.")
    name = f"axiograd_spec_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path} cannot be read as Python.")
    module, execute = importlib.util.module_from_spec(spec), spec.loader.exec_module
    sys.modules[name] = module
    # A file may import its neighbours, as a script does.
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        _users(str(path), lambda: execute(module))
    finally:
        sys.path.remove(str(path.parent.resolve()))
    return module


def _from_package(name: str) -> Any:
    sys.path.insert(0, "")
    try:
        return _users(name, lambda: importlib.import_module(name))
    except ConfigurationError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            raise ConfigurationError(f"{name} cannot be imported: {error.__cause__}.") from error
        raise
    finally:
        sys.path.remove("")


def example_input(model: nn.Module, shape: str | None, batch: int = 2) -> Tensor:
    """Random inputs of the given shape of one sample ("3,224,224"), or of one guessed from the first layer.

    >>> example_input(nn.Sequential(nn.Linear(5, 2)), None).shape
    torch.Size([2, 5])
    """
    sizes = guess_shape(model) if shape is None else read_shape(shape)
    parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, *sizes, generator=generator).to(parameter.device, parameter.dtype)


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
    """What the first layer with weights takes."""
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
