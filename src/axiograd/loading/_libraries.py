"""What names of other libraries' models have in common: a library that is not there, a name that it does not have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeVar

import torch

from axiograd.errors import AxiogradError, ConfigurationError

T = TypeVar("T")


def library(module: str) -> Any:
    """A library's module; why it cannot be imported, in a sentence."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{package} is not installed ({error}): pip install {package}.") from error
    except Exception as error:
        raise ConfigurationError(
            f"{package} is installed and cannot be imported beside torch {torch.__version__}: {first_line(error)}. "
            "torch and torchvision come in pairs, of one version and for one kind of device."
        ) from error


def make(spec: str, build: Callable[[], T]) -> T:
    """What a library builds, or why it does not."""
    try:
        return build()
    except AxiogradError:
        raise
    except Exception as error:
        raise ConfigurationError(f"{spec} cannot be made: {first_line(error)}.") from error


def unknown(spec: str, known: Sequence[str]) -> ConfigurationError:
    """No such name, and the nearest ones."""
    if near := get_close_matches(spec.partition(":")[2], known, n=3):
        return ConfigurationError(f"{spec}: there is no such model; did you mean {' or '.join(near)}?")
    return ConfigurationError(f"{spec}: no such model; it knows {len(known):,} others.")


def first_line(error: BaseException) -> str:
    """The beginning of what an error says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
