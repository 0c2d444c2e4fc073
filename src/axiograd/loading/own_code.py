"""A user's own model, `net.py:build`, and what stands beside its factory: `preprocess`, `classes`, `schema`."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from torch import nn

from axiograd._user_code import member, module_of, run
from axiograd.datasets import PIXELS, Preprocess, Schema
from axiograd.errors import ConfigurationError
from axiograd.loading.loaded import Loaded
from axiograd.loading.prepared import Prepared
from axiograd.loading.shapes import image_shape
from axiograd.models import read_state_dict
from axiograd.models.weights import bare_key, load_into


def load(spec: str, weights: str | None, settings: Mapping[str, Any]) -> Loaded:
    """Run the factory with the settings; what its module says of inputs and classes is taken as it is."""
    module = module_of(spec)
    found = member(module, spec)
    model = found if isinstance(found, nn.Module) else run(spec, lambda: found(**settings))
    if not isinstance(model, nn.Module):
        raise ConfigurationError(f"{spec} must make a torch.nn.Module, not {type(model).__name__}.")
    fill(model, spec, weights)
    schema, classes = getattr(module, "schema", None), getattr(module, "classes", ())
    if schema is not None and not isinstance(schema, Schema):
        raise ConfigurationError(
            f"schema beside {spec} is of type {type(schema).__name__}: expected an axiograd.datasets.Schema, as "
            "Schema.fit(table, label=…) makes of the training data."
        )
    if isinstance(classes, str) or not all(isinstance(name, str) for name in classes):
        raise ConfigurationError(f"classes beside {spec}: expected the names of the outputs, as ['cat', 'dog'].")
    # None: a factory may load its weights itself.
    trained = None if weights is None else True
    names = tuple(classes) or (() if schema is None else schema.classes)
    model.eval()
    return Loaded(spec, model, spec, trained, schema=schema, pixels=_pixels(module, spec, model), classes=names)


def fill(model: nn.Module, spec: str, weights: str | None) -> None:
    """Load a file of weights, if there is one."""
    if weights is None:
        return
    state = read_state_dict(weights)
    # A model may have a part of its own that is called `module`, which the reader takes for DataParallel's.
    names = {bare_key(key): key for key in model.state_dict()}
    load_into(model, {names.get(key, key): value for key, value in state.items()}, model_name=spec, source=weights)


def _pixels(module: ModuleType, spec: str, model: nn.Module) -> Prepared | None:
    found = getattr(module, "preprocess", None)
    if isinstance(found, str | Preprocess):
        grey = (image_shape(model) or (0,))[0] == 1
        return Prepared.read(found, Prepared(PIXELS, grey)) if isinstance(found, str) else Prepared(found, grey)
    if found is not None and not callable(found):
        raise ConfigurationError(
            f"preprocess beside {spec} is of type {type(found).__name__}: expected an axiograd.datasets.Preprocess, "
            "its words as 'size=28,mean=0.5,std=0.5,grey', or a function from a PIL image to a tensor."
        )
    return None if found is None else Prepared(found)
