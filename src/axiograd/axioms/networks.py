"""What axioms are checked on: functions of features, generated or the user's, that can be put together in new ways."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from axiograd._calls import logits
from axiograd._state import in_mode
from axiograd.errors import TargetError

#: Every generated network has this many features, so that one set of references fits all.
N_FEATURES = 4

_WIDTHS = ((N_FEATURES, 6, 1), (N_FEATURES, 8, 6, 1), (N_FEATURES, 6, 6, 4, 1))
_BATCH = 6

#: Weights ``[out, in]`` and bias ``[out]``, which is zero in X-DNNs.
Layer: TypeAlias = tuple[Tensor, Tensor]


def reordered(x: Tensor, order: Sequence[int]) -> Tensor:
    """Samples with feature order[i] in the place of feature i; features are the entries of a sample, counted through.

    >>> reordered(torch.tensor([[[1, 2], [3, 4]]]), [0, 0, 3, 2])
    tensor([[[1, 1], [4, 3]]])
    """
    return x.flatten(1)[:, list(order)].reshape(x.shape)


@dataclass(frozen=True, eq=False)
class Network:
    """One scalar F(x) per sample. The axioms need other functions made of it, each again a network.

    What is made of linear layers with ReLU is such a network again, because LRP knows plain sequences only.

    >>> first = Network.of(nn.Identity(), torch.zeros(1, 2), 0)
    >>> first.combined(10.0, first.permuted([1, 0]), 1.0)(torch.tensor([[3.0, 4.0]]))
    tensor([34.])
    """

    model: nn.Module
    #: Of linear layers with ReLU between them, if F is made of such.
    layers: tuple[Layer, ...] = ()
    #: One more network that is known to compute the same function, and how it differs.
    twin: tuple[str, Network] | None = None

    @classmethod
    def of(cls, model: Any, inputs: Tensor, target: int | None) -> Network:
        """A user's model with one tensor input, and which of its outputs is attributed; the model is not changed."""
        with torch.no_grad(), in_mode(model, training=False):
            outputs = logits(model(inputs))
        n_outputs = outputs.numel() // len(inputs)
        if (target is None and n_outputs != 1) or (target is not None and not 0 <= target < n_outputs):
            raise TargetError(
                f"target={target} for an output of shape {tuple(outputs.shape)}: axioms are about one scalar per "
                "sample; give the index of one output."
            )
        inner = model if isinstance(model, nn.Module) else _Composed(model)
        return cls(_Composed(lambda x, inner: logits(inner(x)).reshape(len(x), -1)[:, target or 0], inner))

    @classmethod
    def dense(cls, *layers: Layer, twin: tuple[str, Network] | None = None) -> Network:
        """Linear layers with ReLU between them."""
        return cls(_sequential(layers), layers, twin)

    def module(self) -> nn.Module:
        """A new module that computes F: methods with hooks cannot follow layers that two networks share."""
        return copy.deepcopy(self.model).eval()

    def __call__(self, x: Tensor) -> Tensor:
        """F(x), one value per sample."""
        with torch.no_grad():
            outputs: Tensor = self.module()(x)
        return outputs.reshape(len(x))

    def permuted(self, order: Sequence[int]) -> Network:
        """x ↦ F(x_order): feature i of F is feature order[i] of x."""
        if self.layers:
            (weight, bias), *rest = self.layers
            return Network.dense((weight[:, torch.tensor(order).argsort()], bias), *rest)
        return self._composed(lambda x, inner: inner(reordered(x, order)))

    def masked(self, mask: Tensor) -> Network:
        """x ↦ F(mask · x): a function that does not depend on features where the mask is false."""
        return self._composed(lambda x, inner: inner(mask * x))

    def combined(self, a: float, other: Network, b: float) -> Network:
        """a · F + b · G."""
        if self.layers and len(self.layers) == len(other.layers):
            return Network.dense(*_side_by_side(self.layers, a, other.layers, b))
        return self._composed(lambda x, first, second: a * first(x) + b * second(x), other.module())

    def equivalents(self, generator: torch.Generator) -> list[tuple[str, Network]]:
        """Other networks that compute the same function, and how they differ."""
        if self.layers:
            found = [(name, Network.dense(*layers)) for name, layers in _rewritten(self.layers, generator)]
            return [("the same network again", self), *found, *([self.twin] if self.twin else [])]
        split = self._composed(lambda x, inner, up, down: inner(up(x) - down(-x)), nn.ReLU(), nn.ReLU())
        return [
            ("the same network again", self),
            ("the input split into positive and negative part", split),
            ("the mean of two copies", self.combined(0.5, self, 0.5)),
        ]

    def _composed(self, function: Callable[..., Tensor], *parts: nn.Module) -> Network:
        return Network(_Composed(function, self.module(), *parts))


class _Composed(nn.Module):
    """A function of an input and of modules, which methods with hooks find in it."""

    def __init__(self, function: Callable[..., Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.parts)


def _sequential(layers: Sequence[Layer]) -> nn.Sequential:
    parts: list[nn.Module] = []
    for weight, bias in layers:
        linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta")  # which draws nothing at random
        linear.weight, linear.bias = nn.Parameter(weight), nn.Parameter(bias)
        parts += [linear, nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def _side_by_side(first: Sequence[Layer], a: float, second: Sequence[Layer], b: float) -> list[Layer]:
    """Layers of a · F + b · G: both networks side by side on the same input, added up by the last layer."""
    pairs = list(zip(first, second, strict=True))
    layers = [(torch.block_diag(w1, w2), torch.cat([b1, b2])) for (w1, b1), (w2, b2) in pairs]
    weight, bias = layers[0]
    layers[0] = (sum(weight.chunk(2, dim=1)), bias)
    weight, bias = layers[-1]
    factors = _rows([a, b])
    layers[-1] = (factors @ weight, factors @ bias)
    return layers


def _rewritten(layers: Sequence[Layer], generator: torch.Generator) -> list[tuple[str, tuple[Layer, ...]]]:
    """The same function with its first hidden layer written in other ways."""
    (w1, b1), (w2, b2), *rest = layers
    order = torch.randperm(len(w1), generator=generator)
    by = 0.25 + 4 * torch.rand(len(w1), dtype=w1.dtype, generator=generator)
    split = (torch.cat([0.25 * w2, 0.75 * w2], dim=1), b2)
    # ReLU(h) = ReLU(½ · ReLU(2h))
    half = (torch.eye(len(w1), dtype=w1.dtype) / 2, torch.zeros_like(b1))
    return [
        ("hidden units permuted", ((w1[order], b1[order]), (w2[:, order], b2), *rest)),
        ("a ReLU layer re-scaled", ((w1 * by[:, None], b1 * by), (w2 / by, b2), *rest)),
        ("hidden units split in two", ((w1.repeat(2, 1), b1.repeat(2)), split, *rest)),
        ("a ReLU layer split in two", ((2 * w1, 2 * b1), half, (w2, b2), *rest)),
    ]


@dataclass(frozen=True, eq=False)
class Subject:
    """A network and inputs to attribute at."""

    name: str
    network: Network
    inputs: Tensor

    @property
    def n_features(self) -> int:
        """How many features a sample has."""
        return self.inputs[0].numel()

    def features(self, generator: torch.Generator, n: int) -> list[int]:
        """Some features, drawn from those that are not zero everywhere."""
        present = self.inputs.flatten(1).abs().sum(0).nonzero().flatten()
        return present[torch.randperm(len(present), generator=generator)[:n]].tolist()

    def only(self, feature: int) -> Tensor:
        """A mask for samples: true at one feature."""
        return (torch.arange(self.n_features, device=self.inputs.device) == feature).reshape(self.inputs[:1].shape)


def generated(generator: torch.Generator, *, homogeneous: bool, n_networks: int) -> list[Subject]:
    """Random networks with random inputs; with biases also those that are known to tell methods apart."""
    kind = "without biases" if homogeneous else "with biases"
    subjects = []
    for i in range(n_networks):
        widths = _WIDTHS[i % len(_WIDTHS)]
        name = f"random ReLU network {'-'.join(map(str, widths))} {kind} (number {i})"
        network = random_network(widths, generator, bias=not homogeneous)
        subjects.append(Subject(name, network, _inputs(generator)))
    return subjects if homogeneous else [saturating(generator), two_implementations(generator), *subjects]


def random_network(widths: Sequence[int], generator: torch.Generator, *, bias: bool) -> Network:
    """Weights of He's scale; biases are as large as the activations, so that they matter."""
    return Network.dense(
        *(
            (_randn(generator, n_out, n_in) * (2 / n_in) ** 0.5, _randn(generator, n_out) * bias)
            for n_in, n_out in pairwise(widths)
        )
    )


def saturating(generator: torch.Generator) -> Subject:
    """The paper's f(x) = 1 − ReLU(1 − x) at x = 2, where it is flat; the other features are dummies."""
    network = Network.dense((_rows([-1, 0, 0, 0]), _rows(1)), (_rows([-1]), _rows(1)))
    inputs = _inputs(generator)
    inputs[:, 0] = _rows(2.0, 2.5, 1.5, 3.0, 2.0, 2.0)
    return Subject("f(x) = 1 - ReLU(1 - x)", network, inputs)


def two_implementations(generator: torch.Generator) -> Subject:
    """ReLU(ReLU(x₁) − 1 − ReLU(x₂)) = ReLU(ReLU(x₁ − 1) − ReLU(x₂)), the pair of Sundararajan et al. (2017)."""
    first, difference, last = _rows([1, 0, 0, 0], [0, 1, 0, 0]), _rows([1, -1]), (_rows([1]), _rows(0))
    inner = Network.dense((first, _rows(-1, 0)), (difference, _rows(0)), last)
    twin = ("the bias moved into the inner ReLU", inner)
    outer = Network.dense((first, _rows(0, 0)), (difference, _rows(-1)), last, twin=twin)
    inputs = _inputs(generator)
    inputs[:, 0], inputs[:, 1] = torch.linspace(3, 5, _BATCH), torch.linspace(1, 1.5, _BATCH)
    return Subject("ReLU(ReLU(x1) - 1 - ReLU(x2))", outer, inputs)


def _inputs(generator: torch.Generator) -> Tensor:
    return 1.5 * _randn(generator, _BATCH, N_FEATURES)


def _rows(*values: float | Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _randn(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator)
