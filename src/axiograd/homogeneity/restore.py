"""Attributes that a forward pass leaves on its modules are taken back after the export, which runs on fake tensors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def attributes_restored(model: Callable[..., Any]) -> Iterator[None]:
    """Puts every module's attributes and buffers back as they were."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    saved = [(vars(m), dict(vars(m))) for m in modules]
    saved += [(m._buffers, dict(m._buffers)) for m in modules]  # noqa: SLF001 - the only way to the dict itself
    try:
        yield
    finally:
        for live, before in saved:
            if live.keys() != before.keys() or any(live[key] is not before[key] for key in before):
                live.clear()
                live.update(before)
