"""From a configuration to the model, the data and the loss that it names."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.nn import functional as F

import axiograd.attribution
import axiograd.datasets
import axiograd.models
import axiograd.priors
from axiograd._user_code import locate
from axiograd.errors import ConfigurationError
from axiograd.training.batches import WithArguments
from axiograd.training.config import TrainingConfig, find_factory, saying
from axiograd.training.fit import FitResult, fit
from axiograd.training.loss import AttributionLoss
from axiograd.training.seeds import kept_rng, seed_everything


def train_from(config: TrainingConfig, **overrides: Any) -> FitResult:
    """Do what a configuration says; it resumes from the folder's last checkpoint."""
    train_data, validation = build_data(config)
    with kept_rng():
        seed_everything(config.seed, "model")
        model = build_model(config)
    run = config.run
    settings: dict[str, Any] = {
        "metric": run.metric,
        "recipe": config.recipe,
        "out": config.out,
        "seed": config.seed,
        "num_workers": run.num_workers,
        "checkpoint_steps": run.checkpoint_steps,
        "checkpoint_minutes": run.checkpoint_minutes,
        "log_steps": run.log_steps,
        "compiled": run.compiled,
        "accelerator": run.accelerator,
        "devices": run.devices,
        "num_nodes": run.num_nodes,
        "strategy": run.strategy,
        "precision": run.precision,
    }
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


def build_model(config: TrainingConfig) -> nn.Module:
    """The model by its name in `axiograd.models`, or by `package.module:factory`."""
    name, options = config.model.name, config.model.options
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
    load = find_factory(config.data.name, "data.name", known)
    data = _data_set(_call(load, config.data.train, "data.train"), config.data.name)
    if config.data.arguments:
        data = WithArguments(data, **config.data.arguments)
    if config.data.validation is None:
        return data, None
    return data, _data_set(_call(load, config.data.validation, "data.validation"), config.data.name)


def _data_set(found: Any, name: str) -> Any:
    if isinstance(found, str | bytes | Mapping) or not (hasattr(found, "__getitem__") or hasattr(found, "__iter__")):
        raise ConfigurationError(f"data.name {name!r} gave a {type(found).__name__}, not a data set.")
    return found


def build_loss(config: TrainingConfig) -> Any:
    """The task loss, with a prior on attributions if one is named."""
    loss = config.loss
    task = find_factory(loss.task, "loss.task", {name: one for name, one in vars(F).items() if callable(one)})
    if loss.prior is None:
        return task
    priors = {name: one for name, one in vars(axiograd.priors).items() if inspect.isclass(one)}
    methods = {name: one for name, one in vars(axiograd.attribution).items() if inspect.isclass(one)}
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
