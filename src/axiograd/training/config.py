"""A training run as a TOML file: which model, data, loss and recipe, and what is built of these names."""

import inspect
import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import axiograd.datasets
import axiograd.priors
from axiograd._names import choose_from
from axiograd._user_code import load, locate
from axiograd.attribution.methods import METHODS
from axiograd.datasets import PIXELS, ImageFiles, Preprocess
from axiograd.datasets.tables import is_table
from axiograd.errors import AxiogradError, ConfigurationError
from axiograd.homogeneity import Conversion, to_xdnn
from axiograd.loading import load as load_model
from axiograd.models.recipe import BuildRecipe
from axiograd.models.registry import resolve
from axiograd.training.data import WithArguments, ensure_dataset, loader
from axiograd.training.fit import FitResult, fit
from axiograd.training.loss import AttributionLoss
from axiograd.training.recipe import Recipe

#: Dimensions of an image: channels, height, width.
_IMAGE = 3


@dataclass(frozen=True)
class ConvertConfig:
    """The model is made an X-DNN by `axiograd.to_xdnn` before it is trained, on so many of the training samples."""

    how: Literal["auto", "strip", "carry", "calibrate", "lift"] = "auto"
    examples: int = 256


@dataclass(frozen=True)
class ModelConfig:
    """`name` is one of `axiograd.models.list_models()` or `file.py:Class`, `package.module:factory`; options go to it.

    `weights` is a file, or a name that the model's library knows.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    weights: str | None = None
    convert: ConvertConfig | None = None


@dataclass(frozen=True)
class DataConfig:
    """`name` is a function of `axiograd.datasets`, a CSV or Parquet file, or `package.module:factory`.

    Its arguments are `options`, and those of `train` or `validation`.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=lambda: {"split": "train"})
    validation: dict[str, Any] | None = None
    arguments: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LossConfig:
    """Names in `torch.nn.functional`, `axiograd.priors` and `axiograd`; without a prior, the task loss alone."""

    task: str = "cross_entropy"
    prior: str | None = None
    prior_options: dict[str, Any] = field(default_factory=dict)
    weight: float = 1.0
    method: str = "XGradient"
    method_options: dict[str, Any] = field(default_factory=dict)
    outputs: Literal["target", "all", "random", "residual"] = "target"


@dataclass(frozen=True)
class TrainingConfig:
    """Everything that `axiograd train` is told; `run` holds further arguments of `fit` and of Lightning's Trainer."""

    model: ModelConfig
    data: DataConfig
    out: Path
    loss: LossConfig = field(default_factory=LossConfig)
    recipe: Recipe = field(default_factory=Recipe)
    run: dict[str, Any] = field(default_factory=dict)
    seed: int = 0


# Reading


def load_config(path: str | Path) -> TrainingConfig:
    """Read a TOML file; a key that is not known is refused, with the ones that it may have meant."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not TOML: {error}") from error
    return parse_config(table)


def parse_config(table: Mapping[str, Any]) -> TrainingConfig:
    """The configuration in a table.

    >>> config = parse_config({"out": "runs/a", "model": {"name": "xmlp"}, "data": {"name": "decoy"},
    ...                        "recipe": {"preset": "alexnet", "epochs": 2}})
    >>> config.recipe.epochs, config.recipe.lr
    (2, 0.01)
    >>> parse_config({"modle": {"name": "xmlp"}})
    Traceback (most recent call last):
    axiograd.errors.ConfigurationError: 'modle' is not known; did you mean 'model'? ...
    """
    config: TrainingConfig = _read(TrainingConfig, table, "")
    return config


def _read(kind: Any, table: Mapping[str, Any], section: str) -> Any:
    """A data class from a table; a key that is unknown or missing, and a value of another type, are named."""
    hints, where = typing.get_type_hints(kind), f"{section}." if section else ""
    if kind is Recipe and "preset" in table:
        preset = asdict(Recipe.preset(table["preset"]))
        table = {**preset, **{key: value for key, value in table.items() if key != "preset"}}
    for key in table:
        if key not in hints:
            raise ConfigurationError(f"'{where}{key}' is not known; {choose_from(key, hints)}.")
    for one in fields(kind):
        if one.name not in table and one.default is MISSING and one.default_factory is MISSING:
            raise ConfigurationError(f"'{where}{one.name}' is missing; a training run needs model, data and out.")
    return kind(**{key: _value(value, hints[key], where + key) for key, value in table.items()})


def _value(value: Any, hint: Any, where: str) -> Any:
    inside = typing.get_args(hint)
    section = next((one for one in (hint, *inside) if is_dataclass(one)), None)
    if section is not None or dict in {typing.get_origin(one) for one in (hint, *inside)}:
        if not isinstance(value, dict):
            raise ConfigurationError(f"{where} is {value!r}; it must be a table, [{where}].")
        return value if section is None else _read(section, value, where)
    if typing.get_origin(hint) is Literal:
        fits, wanted = value in inside, f"one of {', '.join(map(repr, inside))}"
    else:
        kind = str if hint is Path else inside[0] if inside else hint  # inside: or None, which TOML cannot say
        fits, wanted = type(value) is kind or (kind is float and type(value) is int), f"of type {kind.__name__}"
    if not fits:
        raise ConfigurationError(f"{where} is {value!r}; it must be {wanted}.")
    return Path(value) if hint is Path else value


# Building


def train_from(
    config: TrainingConfig, *, on_convert: Callable[[Conversion], None] | None = None, **overrides: Any
) -> FitResult:
    """Do what a configuration says; it resumes from the folder's last checkpoint.

    `on_convert` is called with the conversion, if there is one, before training begins.
    """
    data, validation = build_data(config)
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        model, conversion, classes = build_model(config, data)
    for each in (data, validation):
        match_classes(each, classes)
    if conversion is not None and on_convert is not None:
        on_convert(conversion)
    settings: dict[str, Any] = {"recipe": config.recipe, "out": config.out, "seed": config.seed, **config.run}
    settings["metadata"] = recipe_of(config, data, validation, conversion).to_metadata()
    samples = with_arguments(config, data)
    return fit(model, samples, build_loss(config), validation=validation, **{**settings, **overrides})


def code_named_in(config: TrainingConfig) -> dict[str, str]:
    """The names in a configuration that lead to Python of the user's own, each located and none imported."""
    loss = config.loss
    names = {"model.name": config.model.name, "data.name": config.data.name, "loss.task": loss.task}
    names |= {"loss.prior": loss.prior or "", "loss.method": loss.method}
    named = {where: name for where, name in names.items() if ":" in name}
    for where, name in named.items():
        with _prefix_errors(where):
            locate(name)
    return named


def build_model(config: TrainingConfig, data: Any = None) -> tuple[nn.Module, Conversion | None, tuple[str, ...]]:
    """The model by its name, with its weights, what made it an X-DNN, and its classes; a table says how wide it is."""
    chosen = config.model
    with _prefix_errors("model"):
        loaded = load_model(chosen.name, chosen.weights, settings=settings_for(config, data))
        model = loaded.model
        if chosen.convert is None:
            return model.train(), None, loaded.classes
        # The first of a shuffled order: some of every class.
        examples = next(iter(loader(ensure_dataset(data, "data"), chosen.convert.examples, shuffle=True))).inputs
        conversion = to_xdnn(model, examples, how=chosen.convert.how)
        return conversion.model.train(), conversion, loaded.classes


def match_classes(data: Any, classes: Sequence[str]) -> None:
    """Folders with the names of the model's classes become the outputs of these names, in whichever order they are."""
    if isinstance(data, ImageFiles) and set(data.classes) <= set(classes):
        data.targets = torch.tensor([classes.index(name) for name in data.classes])[data.targets]
        data.classes = tuple(classes)


def build_data(config: TrainingConfig) -> tuple[Any, Any]:
    """The data to train on and, if there are options for it, the data to validate with."""
    known = {name: one for name, one in vars(axiograd.datasets).items() if inspect.isfunction(one)}
    name, options = config.data.name, config.data.options
    if is_table(name):
        name, options = "table", {"path": name, **options}
    make = find_factory(name, "data.name", known)
    data = _call(make, {**options, **config.data.train}, "data.train")
    if config.data.validation is None:
        return data, None
    return data, _call(make, {**options, **config.data.validation}, "data.validation")


def with_arguments(config: TrainingConfig, data: Any) -> Any:
    """The data with what the prior is told about each sample."""
    return WithArguments(data, **config.data.arguments) if config.data.arguments else data


def build_loss(config: TrainingConfig) -> Any:
    """The task loss, with a prior on attributions if one is named."""
    loss = config.loss
    task = find_factory(loss.task, "loss.task", {name: one for name, one in vars(F).items() if callable(one)})
    if loss.prior is None:
        return task
    priors = {name: one for name, one in vars(axiograd.priors).items() if inspect.isclass(one)}
    methods = {key: one.method for one in METHODS.values() for key in (one.name, one.method.__name__)}
    prior = _call(find_factory(loss.prior, "loss.prior", priors), loss.prior_options, "loss.prior_options")
    method = find_factory(loss.method, "loss.method", methods)
    return AttributionLoss(task, prior, loss.weight, method, outputs=loss.outputs, **loss.method_options)


def find_factory(name: str, where: str, known: Mapping[str, Any]) -> Any:
    """What a name stands for among the known ones, or `package.module:function` or `file.py:function`, your code."""
    if ":" in name:
        with _prefix_errors(where):
            return load(name)
    if name not in known:
        raise ConfigurationError(f"{where} {name!r} is not known; {choose_from(name, known)}.")
    return known[name]


def _call(factory: Callable[..., Any], options: dict[str, Any], where: str) -> Any:
    signature = inspect.signature(factory)
    try:
        signature.bind(**options)
    except TypeError as error:
        name, known = getattr(factory, "__name__", factory), ", ".join(signature.parameters)
        raise ConfigurationError(f"{where}: {error}; {name} has {known}.") from error
    return factory(**options)


@contextmanager
def _prefix_errors(where: str) -> Iterator[None]:
    """Errors begin with the key that they are about."""
    try:
        yield
    except AxiogradError as error:
        raise ConfigurationError(f"{where}: {error}") from error


# What the file of trained weights says of itself, so that it can be used as it is


def settings_for(config: TrainingConfig, data: Any) -> dict[str, Any]:
    """The model's options; for one of ours and a table, also how many columns and classes that has."""
    options, schema = dict(config.model.options), getattr(data, "schema", None)
    if ":" not in config.model.name and schema is not None:
        options.setdefault("in_channels", len(schema.encoded_names))
        options.setdefault("num_classes", len(schema.classes) or 1)
    return options


def recipe_of(config: TrainingConfig, data: Any, validation: Any, conversion: Conversion | None) -> BuildRecipe:
    """How the model is rebuilt, how its inputs are prepared, and what its classes are called."""
    name, weights, settings = config.model.name, config.model.weights, settings_for(config, data)
    if ":" not in name and weights is not None:
        settings = {**resolve(name, weights, root=None, download=False)[1], **settings}
    schema, shape = getattr(data, "schema", None), _shape(data)
    is_image = len(shape) == _IMAGE
    names = getattr(data, "classes", None) or getattr(data, "names", None) or ()
    return BuildRecipe(
        spec=name,
        how="trained" if conversion is None else conversion.how,  # type: ignore[arg-type]
        shape=shape,
        settings=settings,
        weights="trained",
        examples=str(getattr(data, "name", config.data.name)),
        table={} if schema is None else schema.to_dict(),
        pixels=_pixels(data, validation) if is_image else {},
        classes=tuple(schema.classes if schema is not None else map(str, names) if is_image else ()),
    )


def _shape(data: Any) -> tuple[int, ...]:
    """Of one sample's input; what is not one tensor has none that a file could tell."""
    with torch.random.fork_rng():
        item = (data[0][0],) if isinstance(data, tuple) else data[0]
    first = item.get("inputs") if isinstance(item, Mapping) else item[0]
    return tuple(first.shape) if isinstance(first, Tensor) and first.dim() else (1,)


def _pixels(data: Any, validation: Any) -> dict[str, Any]:
    """How images become inputs: the files' transform, or values in [0, 1] as they are; else nothing is claimed."""
    for each in (validation, data):
        transform = getattr(each, "transform", None)
        if isinstance(transform, Preprocess):
            return transform.to_dict()
    inputs = getattr(data, "inputs", None)
    plain = isinstance(inputs, Tensor) and float(inputs.min()) >= 0 and float(inputs.max()) <= 1
    return PIXELS.to_dict() if plain else {}
