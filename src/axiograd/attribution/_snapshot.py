"""A model whose modules a foreign library may write on, and that comes back as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def snapshot(module: nn.Module | None) -> Iterator[None]:
    """Hooks, rules, attributes, mode and parameters are put back, also after an exception.

    Parameters are swapped for copies: a library that rewrites weights (LRP) then never touches the
    user's storage, nor what is saved there for a later ``backward()``.

    >>> linear = nn.Linear(1, 1)
    >>> weight = linear.weight
    >>> with snapshot(linear):
    ...     linear.weight.data.zero_(), linear.train(False), linear.register_forward_hook(print)
    (tensor([[0.]]), Linear(...), ...)
    >>> linear.weight is weight, bool(weight.any()), linear.training, len(linear._forward_hooks)
    (True, True, True, 0)
    """
    modules = list(module.modules()) if module is not None else []
    attributes = [dict(m.__dict__) for m in modules]
    # Handles of hooks refer to the dictionaries themselves, so those are refilled, not replaced.
    tables = [{k: (v, dict(v)) for k, v in vars(m).items() if isinstance(v, dict)} for m in modules]
    copies: dict[int, nn.Parameter] = {}
    for m in modules:
        for name, p in m._parameters.items():  # noqa: SLF001  # setattr would run a module's own __setattr__
            if p is not None:
                copy = copies.setdefault(id(p), nn.Parameter(p.detach().clone(), requires_grad=p.requires_grad))
                m._parameters[name] = copy  # noqa: SLF001
    try:
        yield
    finally:
        for m, own, dictionaries in zip(modules, attributes, tables, strict=True):
            _refill(m.__dict__, own)
            for dictionary, content in dictionaries.values():
                _refill(dictionary, content)


def _refill(dictionary: dict[str, Any], content: dict[str, Any]) -> None:
    dictionary.clear()
    dictionary.update(content)
