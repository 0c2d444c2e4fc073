"""What all conversions share: the example call that they walk through, the mode they run in, the edits they list."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from axiograd._calls import Leaves
from axiograd._state import in_mode, preserved_buffers, with_buffers
from axiograd.homogeneity.conversion.scale import Roles


@dataclass(frozen=True)
class Edit:
    """One change: where, from what, to what; `source` is the line of functional code, if it was that."""

    module: str
    before: str
    after: str
    source: str = ""

    def __str__(self) -> str:
        line = f" ({self.source})" if self.source else ""
        return f"{self.module or 'the model'}: {self.before} → {self.after}{line}"


@dataclass(frozen=True)
class ExampleCall:
    """The example call of a model, with the role of every argument."""

    leaves: Leaves
    roles: Roles

    def __call__(self, model: nn.Module) -> Any:
        args, kwargs = self.leaves.copies()
        return model(*args, **kwargs)


@contextmanager
def running(model: nn.Module, *, training: bool = False, keep_buffers: bool = True) -> Iterator[None]:
    """Everything in one mode; modes, random numbers and, if wanted, buffers are afterwards as they were."""
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    owners = with_buffers(model) if keep_buffers else []
    with in_mode(model, training=training), torch.random.fork_rng(list(devices)), preserved_buffers(owners):
        yield


def runs_torchs_code(module: nn.Module) -> bool:
    """Whether this is a layer of PyTorch with its own forward; one of the user's own is functional code."""
    return type(module).forward.__module__.startswith("torch.nn.")
