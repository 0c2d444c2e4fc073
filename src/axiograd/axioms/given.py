"""A user's own model as a network: other functions are made of it by wrapping."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from axiograd._target import logits
from axiograd.axioms.network import Network
from axiograd.errors import TargetError

Build = Callable[[], nn.Module]


@dataclass(frozen=True, eq=False)
class GivenNetwork(Network):
    """Any model with one tensor input; features are the entries of a sample, counted through.

    >>> double = GivenNetwork.of(nn.Identity(), torch.zeros(1, 2), 0)
    >>> double.permuted([1, 0])(torch.tensor([[3.0, 4.0]]))
    tensor([4.])
    """

    build: Build
    shape: tuple[int, ...]

    @classmethod
    def of(cls, model: Any, inputs: Tensor, target: int | None) -> GivenNetwork:
        """Read a model and which of its outputs is attributed; the model itself is never changed."""
        with torch.no_grad():
            outputs = logits(model(inputs))
        n_outputs = outputs.numel() // len(inputs)
        if (target is None and n_outputs != 1) or (target is not None and not 0 <= target < n_outputs):
            raise TargetError(
                f"target={target} for an output of shape {tuple(outputs.shape)}: axioms are about one scalar per "
                "sample; give the index of one output."
            )
        return cls(lambda: _Scalar(model, target or 0), tuple(inputs.shape[1:]))

    def module(self) -> nn.Module:
        # A copy: networks made of the same model twice must not share layers, which methods with hooks cannot follow.
        return copy.deepcopy(self.build()).eval()

    def _made(self, function: Callable[..., Tensor], *parts: Build) -> GivenNetwork:
        return GivenNetwork(lambda: _Made(function, self.module(), *(part() for part in parts)), self.shape)

    def permuted(self, order: Sequence[int]) -> GivenNetwork:
        places = torch.tensor(list(order))
        return self._made(
            lambda x, inner: inner(x.flatten(1).index_select(1, places.to(x.device)).reshape(x.shape)),
        )

    def kept(self, features: Sequence[int]) -> GivenNetwork:
        mask = torch.zeros(self.shape).flatten()
        mask[list(features)] = 1
        mask = mask.reshape(self.shape)
        return self._made(lambda x, inner: inner(x * mask.to(x)))

    def combined(self, a: float, other: Network, b: float) -> GivenNetwork:
        return self._made(lambda x, first, second: a * first(x) + b * second(x), other.module)

    def equivalents(self, generator: torch.Generator) -> list[tuple[str, Network]]:  # noqa: ARG002
        split = self._made(lambda x, inner, up, down: inner(up(x) - down(-x)), nn.ReLU, nn.ReLU)
        return [
            ("the same model again", self),
            ("the input split into positive and negative part", split),
            ("the mean of two copies", self.combined(0.5, self, 0.5)),
        ]


class _Scalar(nn.Module):
    def __init__(self, model: Any, column: int) -> None:
        super().__init__()
        self.model = model
        self.column = column

    def forward(self, x: Tensor) -> Tensor:
        return logits(self.model(x)).reshape(len(x), -1)[:, self.column]


class _Made(nn.Module):
    """A function of an input and of modules, which methods with hooks find in it."""

    def __init__(self, function: Callable[..., Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.parts)
