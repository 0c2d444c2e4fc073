"""Functions of features that can be taken apart and put together again: what the axioms speak about."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from axiograd._calls import logits
from axiograd.errors import TargetError


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


Build = Callable[[], nn.Module]


@dataclass(frozen=True, eq=False)
class GivenNetwork(Network):
    """A user's own: any model with one tensor input; features are the entries of a sample, counted through.

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
