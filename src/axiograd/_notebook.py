"""Output in notebooks and terminals, drawn by `axiograd.report`, which is imported on first use."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from axiograd.errors import MissingExtraError


def drawn_by(function: str, drawer: str = "notebook") -> Callable[[Any], Any]:
    """A method that is this function of a module of `axiograd.report`."""

    def drawn(self: Any) -> Any:
        """What is shown."""
        return getattr(import_module(f"axiograd.report.{drawer}"), function)(self)

    return drawn


def shown_by(function: str, drawer: str = "notebook") -> Callable[[Any], Any]:
    """The same for a `_repr_html_`; where a package is missing there is none, and notebooks show the text."""
    drawn = drawn_by(function, drawer)

    def shown(self: Any) -> Any:
        """What is shown."""
        try:
            return drawn(self)
        except MissingExtraError:
            return None

    return shown
