"""A training run as a TOML file: which model, data, loss and recipe."""

import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from axiograd._names import choose_from
from axiograd._user_code import load
from axiograd.errors import AxiogradError, ConfigurationError
from axiograd.training.recipe import Recipe

Section = TypeVar("Section")


@dataclass(frozen=True)
class ModelConfig:
    """`name` is one of `axiograd.models.list_models()` or `package.module:factory`; options go to it."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


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
    weight: float | int = 1.0
    method: str = "XGradient"
    method_options: dict[str, Any] = field(default_factory=dict)
    outputs: Literal["target", "all", "random", "residual"] = "target"


@dataclass(frozen=True)
class RunConfig:
    """Where and how `fit` runs: arguments of it, by name."""

    metric: Literal["loss", "accuracy"] = "loss"
    num_workers: int = 0
    checkpoint_steps: int | None = None
    checkpoint_minutes: float | int | None = 10.0
    log_steps: int = 50
    accelerator: str = "auto"
    devices: int | str | None = None
    num_nodes: int | None = None
    strategy: str = "auto"
    precision: str = "32-true"


@dataclass(frozen=True)
class TrainingConfig:
    """Everything that `axiograd train` is told."""

    model: ModelConfig
    data: DataConfig
    out: Path
    loss: LossConfig = field(default_factory=LossConfig)
    recipe: Recipe = field(default_factory=Recipe)
    run: RunConfig = field(default_factory=RunConfig)
    seed: int = 0


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
    _check_keys("", table, [one.name for one in fields(TrainingConfig)])
    sections: dict[str, Any] = {}
    for name, kind in (("model", ModelConfig), ("data", DataConfig), ("loss", LossConfig), ("run", RunConfig)):
        if name in table:
            sections[name] = _section(kind, table[name], name)
    if "recipe" in table:
        recipe = dict(_table(table["recipe"], "recipe"))
        preset = recipe.pop("preset", None)
        _check_keys("recipe", recipe, ["preset", *(one.name for one in fields(Recipe))])
        sections["recipe"] = Recipe(**recipe) if preset is None else Recipe.preset(preset, **recipe)
    top = {"seed": table.get("seed", 0)}
    if not isinstance(top["seed"], int):
        raise ConfigurationError(f"seed is {top['seed']!r}; it must be a whole number.")
    for name in ("model", "data", "out"):
        if name not in table:
            raise ConfigurationError(f"{name!r} is missing; a training run needs model, data and out.")
    return TrainingConfig(out=Path(table["out"]), **sections, **top)


def find_factory(name: str, where: str, known: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """A function by its name among the known ones, or by `package.module:function` or `file.py:function`, your code."""
    if ":" in name:
        with saying(where):
            return typing.cast("Callable[..., Any]", load(name))
    if name not in known:
        raise ConfigurationError(f"{where} {name!r} is not known; {choose_from(name, known)}.")
    return known[name]


@contextmanager
def saying(where: str) -> Iterator[None]:
    """Errors begin with the key that they are about."""
    try:
        yield
    except AxiogradError as error:
        raise ConfigurationError(f"{where}: {error}") from error


def _section(kind: type[Section], value: Any, where: str) -> Section:
    table = _table(value, where)
    hints = typing.get_type_hints(kind)
    _check_keys(where, table, list(hints))
    for key, given in table.items():
        if not _fits(given, hints[key]):
            raise ConfigurationError(f"{where}.{key} is {given!r}; it must be {_spoken(hints[key])}.")
    try:
        return kind(**table)
    except TypeError as error:
        raise ConfigurationError(f"[{where}] is incomplete: {error}") from error


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where} is {value!r}; it must be a table, [{where}].")
    return value


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin is dict:
        return isinstance(value, dict)
    if arguments:
        return any(_fits(value, one) for one in arguments)
    return isinstance(value, hint) and not (isinstance(value, bool) and hint is not bool)


def _spoken(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, typing.get_args(hint)))}"
    return getattr(hint, "__name__", str(hint))


def _check_keys(where: str, table: Mapping[str, Any], known: list[str]) -> None:
    for key in table:
        if key not in known:
            full = f"{where}.{key}" if where else key
            raise ConfigurationError(f"{full!r} is not known; {choose_from(key, known)}.")
