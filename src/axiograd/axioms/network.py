"""Functions of features that can be taken apart and put together again: what the axioms speak about."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import Tensor, nn


class Network(ABC):
    """One scalar F(x) per sample. The axioms need other functions made of it, each again a network."""

    @abstractmethod
    def module(self) -> nn.Module:
        """A fresh module that computes F."""

    @abstractmethod
    def permuted(self, order: Sequence[int]) -> Network:
        """x ↦ F(x_order): feature i of F is feature order[i] of x."""

    @abstractmethod
    def kept(self, features: Sequence[int]) -> Network:
        """x ↦ F(x) with all other features frozen at zero: a function that does not depend on them."""

    @abstractmethod
    def combined(self, a: float, other: Network, b: float) -> Network:
        """a · F + b · G."""

    @abstractmethod
    def equivalents(self, generator: torch.Generator) -> list[tuple[str, Network]]:
        """Other networks that compute the same function, and how they differ."""

    def __call__(self, x: Tensor) -> Tensor:
        """F(x), one value per sample."""
        with torch.no_grad():
            outputs: Tensor = self.module()(x)
        return outputs.reshape(len(x))


#: Weights ``[out, in]`` and bias ``[out]``, or None.
Layer: TypeAlias = tuple[Tensor, Tensor | None]


@dataclass(frozen=True, eq=False)
class DenseNetwork(Network):
    """Linear layers with ReLU between them, so that every function made of it is a plain ``nn.Sequential`` too.

    >>> square = DenseNetwork(((torch.ones(1, 2), None), (torch.ones(1, 1), None)))
    >>> square.combined(2.0, square.permuted([1, 0]), -2.0)(torch.tensor([[3.0, 4.0]]))
    tensor([0.])
    """

    layers: tuple[Layer, ...]
    twins: tuple[tuple[str, DenseNetwork], ...] = ()

    @classmethod
    def random(cls, widths: Sequence[int], generator: torch.Generator, *, bias: bool) -> DenseNetwork:
        """Weights of He's scale; biases are as large as the activations, so that they matter."""

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=generator)

        return cls(
            tuple(
                (draw(n_out, n_in) * (2 / n_in) ** 0.5, draw(n_out) if bias else None)
                for n_in, n_out in pairwise(widths)
            )
        )

    def module(self) -> nn.Module:
        parts: list[nn.Module] = []
        for weight, bias in self.layers:
            linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
            linear.weight.data.copy_(weight)
            if bias is not None:
                linear.bias.data.copy_(bias)
            parts += [linear, nn.ReLU()]
        return nn.Sequential(*parts[:-1]).eval()

    def _with(self, *layers: Layer) -> DenseNetwork:
        return DenseNetwork(layers)

    def permuted(self, order: Sequence[int]) -> DenseNetwork:
        (weight, bias), *rest = self.layers
        moved = torch.empty_like(weight)
        moved[:, list(order)] = weight
        return self._with((moved, bias), *rest)

    def kept(self, features: Sequence[int]) -> DenseNetwork:
        (weight, bias), *rest = self.layers
        frozen = torch.zeros_like(weight)
        frozen[:, list(features)] = weight[:, list(features)]
        return self._with((frozen, bias), *rest)

    def combined(self, a: float, other: Network, b: float) -> DenseNetwork:
        if not isinstance(other, DenseNetwork) or len(other.layers) != len(self.layers):
            raise TypeError("dense networks are combined with dense networks of the same depth.")
        layers: list[Layer] = []
        last = len(self.layers) - 1
        for i, ((w1, b1), (w2, b2)) in enumerate(zip(self.layers, other.layers, strict=True)):
            if i == last:
                bias = None if b1 is None or b2 is None else a * b1 + b * b2
                layers.append((torch.cat([a * w1, b * w2], dim=1), bias))
            else:
                weight = torch.cat([w1, w2]) if i == 0 else torch.block_diag(w1, w2)
                layers.append((weight, None if b1 is None or b2 is None else torch.cat([b1, b2])))
        return self._with(*layers)

    def equivalents(self, generator: torch.Generator) -> list[tuple[str, Network]]:
        return [
            ("the same network again", self),
            ("hidden units permuted", self._hidden(torch.randperm(self.layers[0][0].shape[0], generator=generator))),
            ("a ReLU layer re-scaled", self._rescaled(generator)),
            ("hidden units split in two", self._split_units()),
            ("a ReLU layer split in two", self._split_layer()),
            *self.twins,
        ]

    def _hidden(self, order: Tensor) -> DenseNetwork:
        (w1, b1), (w2, b2), *rest = self.layers
        return self._with((w1[order], None if b1 is None else b1[order]), (w2[:, order], b2), *rest)

    def _rescaled(self, generator: torch.Generator) -> DenseNetwork:
        (w1, b1), (w2, b2), *rest = self.layers
        by = 0.25 + 4 * torch.rand(len(w1), dtype=w1.dtype, generator=generator)
        return self._with((w1 * by.unsqueeze(1), None if b1 is None else b1 * by), (w2 / by, b2), *rest)

    def _split_units(self) -> DenseNetwork:
        (w1, b1), (w2, b2), *rest = self.layers
        twice = None if b1 is None else torch.cat([b1, b1])
        return self._with((torch.cat([w1, w1]), twice), (torch.cat([0.25 * w2, 0.75 * w2], dim=1), b2), *rest)

    def _split_layer(self) -> DenseNetwork:
        """ReLU(h) = ReLU(½ · ReLU(2h)): one more layer, the same function."""
        first, *rest = self.layers
        weight, bias = first
        identity = torch.eye(len(weight), dtype=weight.dtype)
        zero = None if bias is None else torch.zeros_like(bias)
        return self._with((2 * weight, None if bias is None else 2 * bias), (identity / 2, zero), *rest)

    def with_twin(self, name: str, twin: DenseNetwork) -> DenseNetwork:
        """The same network, with one more network that is known to compute the same function."""
        return replace(self, twins=(*self.twins, (name, twin)))
