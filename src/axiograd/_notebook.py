"""How results show in notebooks and terminals: the one place where a package uses `report`, which comes after it."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def drawn_by(function: str, drawer: str = "notebook") -> Callable[[Any], Any]:
    """A method that is this function of a module of `axiograd.report`, loaded when somebody looks."""

    def drawn(self: Any) -> Any:
        """What is shown."""
        return getattr(import_module(f"axiograd.report.{drawer}"), function)(self)

    return drawn


def shown_by(function: str, drawer: str = "notebook") -> Callable[[Any], str]:
    """The same for text, such as a `_repr_html_`."""
    return drawn_by(function, drawer)
