"""Calls as Captum has them: its order of positional arguments where nothing else can be meant."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from torch import Tensor

from axiograd.errors import ConfigurationError

_Call = TypeVar("_Call", bound=Callable[..., Any])


def called_as_in_captum(*order: str) -> Callable[[_Call], _Call]:
    """Let `attribute(self, inputs, target)` also be called with all its arguments in Captum's `order`.

    Two positional arguments are inputs and target, as everywhere here. Three or more are in Captum's order, and so are
    two where the target is named, or where the second can only be a baseline: floats in the inputs' dimensions, or a
    float. The function is kept as ``__wrapped__``, by which Captum's NoiseTunnel calls it.

    >>> @called_as_in_captum("baselines", "target")
    ... def attribute(method, inputs, target=None, *, baselines=None):
    ...     return {"target": target, "baselines": baselines}
    >>> attribute(None, 1.0, 3)
    {'target': 3, 'baselines': None}
    >>> attribute(None, 1.0, 0, 3)
    {'target': 3, 'baselines': 0}
    >>> attribute(None, 1.0, 0, target=3)
    {'target': 3, 'baselines': 0}
    >>> attribute(None, 1.0, 0.5)
    {'target': None, 'baselines': 0.5}
    """

    def decorate(function: _Call) -> _Call:
        @functools.wraps(function)
        def attribute(self: Any, inputs: Any, *further: Any, **named: Any) -> Any:
            certain = len(further) > 1 or "target" in named
            if further and (certain or (order[0] == "baselines" and _is_baseline(further[0], inputs))):
                if len(further) > len(order):
                    raise ConfigurationError(
                        f"attribute takes {', '.join(order)} after the inputs, got {len(further)} arguments."
                    )
                given = dict(zip(order, further, strict=False))
                if twice := given.keys() & named.keys():
                    raise ConfigurationError(
                        f"attribute got {', '.join(sorted(twice))} twice, by position and by name."
                    )
                return function(self, inputs, **given, **named)
            return function(self, inputs, *further, **named)

        return cast("_Call", attribute)

    return decorate


def _is_baseline(value: Any, inputs: Any) -> bool:
    """No class has a number with a fraction; a float per sample may be the truth of a regression, and no baseline."""
    if isinstance(value, tuple | list) and isinstance(inputs, tuple | list):
        return any(_is_baseline(one, x) for one, x in zip(value, inputs, strict=False))
    if isinstance(value, Tensor) and isinstance(inputs, Tensor):
        return value.is_floating_point() and value.dim() == inputs.dim() > 1
    return isinstance(value, float)
