"""From a configuration to the model, the data and the loss that it names."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

import axiograd.datasets
import axiograd.models
import axiograd.priors
from axiograd._user_code import locate
from axiograd.attribution.methods import METHODS
from axiograd.datasets import PIXELS, Preprocess
from axiograd.datasets.tables import is_table
from axiograd.errors import ConfigurationError
from axiograd.models.recipe import BuildRecipe
from axiograd.models.registry import resolve
from axiograd.training.batches import WithArguments
from axiograd.training.config import TrainingConfig, find_factory, saying
from axiograd.training.fit import FitResult, fit
from axiograd.training.loss import AttributionLoss
from axiograd.training.objective import SAMPLE_WEIGHT
from axiograd.training.seeds import kept_rng, seed_everything

#: Dimensions of an image: channels, height, width.
_IMAGE = 3


def train_from(config: TrainingConfig, **overrides: Any) -> FitResult:
    """Do what a configuration says; it resumes from the folder's last checkpoint."""
    train_data, validation = build_data(config)
    with kept_rng():
        seed_everything(config.seed, "model")
        model = build_model(config, train_data)
    settings: dict[str, Any] = {"recipe": config.recipe, "out": config.out, "seed": config.seed, **vars(config.run)}
    settings["metadata"] = recipe_of(config, train_data, validation).to_metadata()
    train_data = with_arguments(config, train_data)
    return fit(model, train_data, loss=build_loss(config), validation=validation, **(settings | overrides))


def code_named_in(config: TrainingConfig) -> dict[str, str]:
    """The names in a configuration that lead to Python of the user's own, each located and none imported."""
    loss = config.loss
    names = {"model.name": config.model.name, "data.name": config.data.name, "loss.task": loss.task}
    names |= {"loss.prior": loss.prior or "", "loss.method": loss.method}
    named = {where: name for where, name in names.items() if ":" in name}
    for where, name in named.items():
        with saying(where):
            locate(name)
    return named


def build_model(config: TrainingConfig, data: Any = None) -> nn.Module:
    """The model by its name in `axiograd.models`, or by `package.module:factory`; a table says how wide it is."""
    name, options = config.model.name, settings_for(config, data)
    if ":" not in name:
        find_factory(name, "model.name", dict.fromkeys(axiograd.models.list_models(), axiograd.models.get_model))
        if options.get("download"):
            raise ConfigurationError(
                "model.options.download: a configuration fetches nothing; get the weights first, by "
                f"axiograd check {name} --weights {options.get('weights', 'default')} --download."
            )
        return axiograd.models.get_model(name, **options)
    model = _call(find_factory(name, "model.name", {}), options, "model.options")
    if not isinstance(model, nn.Module):
        raise ConfigurationError(f"model.name {name!r} gave a {type(model).__name__}, not an nn.Module.")
    return model


def build_data(config: TrainingConfig) -> tuple[Any, Any]:
    """The data to train on and, if there are options for it, the data to validate with."""
    known = {name: one for name, one in vars(axiograd.datasets).items() if inspect.isfunction(one)}
    options = dict(config.data.options)
    if is_table(config.data.name):
        load: Callable[..., Any] = axiograd.datasets.table
        options = {"path": config.data.name, **options}
    else:
        load = find_factory(config.data.name, "data.name", known)

    def build(of_split: Mapping[str, Any], where: str) -> Any:
        return _data_set(_call(load, {**options, **of_split}, where), config.data.name)

    data = build(config.data.train, "data.train")
    return data, None if config.data.validation is None else build(config.data.validation, "data.validation")


def with_arguments(config: TrainingConfig, data: Any) -> Any:
    """The data with what the prior is told about each sample, and with the weights that a table has."""
    arguments = dict(config.data.arguments)
    if getattr(data, "weights", None) is not None:
        arguments.setdefault(SAMPLE_WEIGHT, "weights")
    return WithArguments(data, **arguments) if arguments else data


def _data_set(found: Any, name: str) -> Any:
    if isinstance(found, str | bytes | Mapping) or not (hasattr(found, "__getitem__") or hasattr(found, "__iter__")):
        raise ConfigurationError(f"data.name {name!r} gave a {type(found).__name__}, not a data set.")
    return found


def settings_for(config: TrainingConfig, data: Any) -> dict[str, Any]:
    """The model's options; for one of ours and a table, also how many columns and classes that has."""
    options, schema = dict(config.model.options), getattr(data, "schema", None)
    if ":" not in config.model.name and schema is not None:
        options.setdefault("in_channels", len(schema.encoded_names))
        options.setdefault("num_classes", len(schema.classes) or 1)
    return options


def recipe_of(config: TrainingConfig, data: Any, validation: Any) -> BuildRecipe:
    """What the file of trained weights says of itself, so that it can be used as it is."""
    name, settings = config.model.name, settings_for(config, data)
    if ":" not in name and settings.get("weights") is not None:
        known = resolve(name, settings["weights"], root=settings.get("root"), download=False)[1]
        settings = {**known, **settings}
    schema, shape = getattr(data, "schema", None), _shape(data)
    is_image = len(shape) == _IMAGE
    return BuildRecipe(
        spec=name,
        how="trained",
        shape=shape,
        settings={key: value for key, value in settings.items() if key not in {"weights", "root", "download"}},
        weights="trained",
        examples=str(getattr(data, "name", config.data.name)),
        table={} if schema is None else schema.to_dict(),
        pixels=_pixels(data, validation) if is_image else {},
        classes=tuple(schema.classes) if schema is not None else _classes(data) if is_image else (),
    )


def _shape(data: Any) -> tuple[int, ...]:
    """Of one sample's input; what is not one tensor has none that a file could tell."""
    with kept_rng():
        if isinstance(data, tuple) and data:
            first = data[0][0]
        else:
            item = data[0] if hasattr(data, "__getitem__") else ()
            first = item.get("inputs") if isinstance(item, Mapping) else item[0] if item else None
    return tuple(first.shape) if isinstance(first, Tensor) and first.dim() else (1,)


def _classes(data: Any) -> tuple[str, ...]:
    return tuple(map(str, getattr(data, "classes", None) or getattr(data, "names", None) or ()))


def _pixels(data: Any, validation: Any) -> dict[str, Any]:
    """How images become inputs: the files' transform, or values in [0, 1] as they are; else nothing is claimed."""
    for each in (validation, data):
        transform = getattr(each, "transform", None)
        if isinstance(transform, Preprocess):
            return transform.to_dict()
    inputs = getattr(data, "inputs", None)
    plain = isinstance(inputs, Tensor) and float(inputs.min()) >= 0 and float(inputs.max()) <= 1
    return PIXELS.to_dict() if plain else {}


def build_loss(config: TrainingConfig) -> Any:
    """The task loss, with a prior on attributions if one is named."""
    loss = config.loss
    task = find_factory(loss.task, "loss.task", {name: one for name, one in vars(F).items() if callable(one)})
    if loss.prior is None:
        return task
    priors = {name: one for name, one in vars(axiograd.priors).items() if inspect.isclass(one)}
    methods = {key: one.method for one in METHODS.values() for key in (one.name, one.method.__name__)}
    prior = _call(find_factory(loss.prior, "loss.prior", priors), loss.prior_options, "loss.prior_options")
    return AttributionLoss(
        task,
        prior,
        loss.weight,
        find_factory(loss.method, "loss.method", methods),
        outputs=loss.outputs,
        **loss.method_options,
    )


def _call(factory: Callable[..., Any], options: dict[str, Any], where: str) -> Any:
    try:
        signature = inspect.signature(factory)
    except ValueError:  # written in C, without a signature
        return factory(**options)
    try:
        signature.bind(**options)
    except TypeError as error:
        name, known = getattr(factory, "__name__", factory), ", ".join(signature.parameters)
        raise ConfigurationError(f"{where}: {error}; {name} has {known}.") from error
    return factory(**options)
