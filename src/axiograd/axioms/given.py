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

    def permuted(self, order: Sequence[int]) -> GivenNetwork:
        return GivenNetwork(lambda: _Permuted(self.module(), order), self.shape)

    def kept(self, features: Sequence[int]) -> GivenNetwork:
        mask = torch.zeros(self.shape).flatten()
        mask[list(features)] = 1
        return GivenNetwork(lambda: _Kept(self.module(), mask.reshape(self.shape)), self.shape)

    def combined(self, a: float, other: Network, b: float) -> GivenNetwork:
        return GivenNetwork(lambda: _Combined(self.module(), other.module(), a, b), self.shape)

    def equivalents(self, generator: torch.Generator) -> list[tuple[str, Network]]:  # noqa: ARG002
        return [
            ("the same model again", self),
            (
                "the input split into positive and negative part",
                GivenNetwork(lambda: _Split(self.module()), self.shape),
            ),
            ("the mean of two copies", self.combined(0.5, self, 0.5)),
        ]


class _Scalar(nn.Module):
    def __init__(self, model: Any, column: int) -> None:
        super().__init__()
        self.model = model
        self.column = column

    def forward(self, x: Tensor) -> Tensor:
        return logits(self.model(x)).reshape(len(x), -1)[:, self.column]


class _Permuted(nn.Module):
    order: Tensor

    def __init__(self, inner: nn.Module, order: Sequence[int]) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("order", torch.tensor(list(order)))

    def forward(self, x: Tensor) -> Any:
        return self.inner(x.flatten(1).index_select(1, self.order.to(x.device)).reshape(x.shape))


class _Kept(nn.Module):
    mask: Tensor

    def __init__(self, inner: nn.Module, mask: Tensor) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Any:
        return self.inner(x * self.mask.to(x))


class _Combined(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module, a: float, b: float) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.a, self.b = a, b

    def forward(self, x: Tensor) -> Any:
        return self.a * self.first(x) + self.b * self.second(x)


class _Split(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.positive, self.negative = nn.ReLU(), nn.ReLU()

    def forward(self, x: Tensor) -> Any:
        return self.inner(self.positive(x) - self.negative(-x))
