"""How results show in notebooks: the one place where a room asks `report`, which stands after it, for a drawing."""

from collections.abc import Callable
from typing import Any


def shown_by(function: str) -> Callable[[Any], str]:
    """A `_repr_html_` that is this function of `axiograd.report.notebook`, loaded when a notebook asks."""

    def _repr_html_(self: Any) -> str:
        """What notebooks show."""
        from axiograd.report import notebook

        html: str = getattr(notebook, function)(self)
        return html

    return _repr_html_
