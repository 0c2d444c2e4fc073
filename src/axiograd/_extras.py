"""Modules of packages that need not be installed."""

from importlib import import_module
from typing import Any

from axiograd.errors import MissingExtraError


def optional(module: str, extra: str, purpose: str, *, package: str | None = None) -> Any:
    """The module, or `MissingExtraError`: what it is needed for, and which extra of axiograd brings it.

    >>> optional("nowhere.at_all", "plots", "drawing figures")
    Traceback (most recent call last):
    axiograd.errors.MissingExtraError: drawing figures needs 'nowhere': pip install 'axiograd[plots]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(package or module.partition(".")[0], extra, purpose) from error
