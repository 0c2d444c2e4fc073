"""Activation checkpointing, left out of passes whose activations are not what a later backward pass needs.

Recomputed, a checkpoint would run without the mode that holds gates, on weights that a recorded pass has cut off.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch.utils.checkpoint as torchs


class _Called:
    """In place of the reentrant checkpoint: the function itself."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def apply(self, function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:  # noqa: ARG002
        self._seen.append("reentrant")
        return function(*args)


@contextmanager
def without_checkpoints(*, every: bool) -> Iterator[list[str]]:
    """Reentrant checkpoints are plain calls, and with `every` so are the others; yields which ones were met.

    Threads that checkpoint meanwhile keep their activations, and have the same gradients.
    """
    seen: list[str] = []
    names = {"CheckpointFunction": _Called(seen)} | ({"_checkpoint_hook": lambda _: nullcontext()} if every else {})
    before = {name: getattr(torchs, name) for name in names}
    for name, stand_in in names.items():
        setattr(torchs, name, stand_in)
    try:
        yield seen
    finally:
        for name, own in before.items():
            setattr(torchs, name, own)
