"""Many ReLU networks of one shape at a time: every product is a batched one over a leading axis of models.

For one sample, h_l = ReLU(W_l·h_(l−1) + b_l) and F = W_L·h_(L−1) + b_L. The signals δ_l = ∂F/∂(pre-activation of l)
give the input gradient ∇F = W₁ᵀδ₁, and every parameter gradient that training needs: with the masks of the ReLUs,
which are constant almost everywhere,

    ∂/∂W_l [g·F(x) + v·∇F(x)] = δ_l·q_(l−1)ᵀ    with  q₀ = g·x + v,  q_l = mask_l·(W_l·q_(l−1) + g·b_l),

so that a task loss (g = ∂L/∂F) and a prior on attributions (v) cost two passes and one product per layer together
more than the forward pass, not a backward pass through a backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from axiograd.models.mlp import MLP


@dataclass(frozen=True)
class Networks:
    """Stacked parameters; a weight lies with its longer side last, which is how its gradient is fastest.

    >>> networks = Networks.stack([MLP(1, 6, hidden=(4, 3)), MLP(1, 6, hidden=(4, 3))])
    >>> networks.run(torch.zeros(2, 10, 6))[-1].shape
    torch.Size([2, 10, 1])
    """

    weights: tuple[Tensor, ...]  # [models, in, out], or [models, out, in] where that is longer
    biases: tuple[Tensor, ...]  # [models, 1, out]; none in X-DNNs
    widening: tuple[bool, ...]

    @classmethod
    def stack(cls, models: Sequence[MLP]) -> Networks:
        """The parameters of some networks, copied."""
        linears = [[layer for layer in model if isinstance(layer, torch.nn.Linear)] for model in models]
        layers = list(zip(*linears, strict=True))
        widening = tuple(layer[0].out_features >= layer[0].in_features for layer in layers)
        weights = tuple(
            torch.stack([one.weight.detach().T if wide else one.weight.detach() for one in layer])
            for layer, wide in zip(layers, widening, strict=True)
        )
        biases = [torch.stack([one.bias.detach() for one in layer]) for layer in layers if layer[0].bias is not None]
        return cls(weights, tuple(bias.unsqueeze(1) for bias in biases), widening)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """All weights, then all biases."""
        return self.weights + self.biases

    def copy(self) -> Networks:
        """The same parameters in other memory."""
        return Networks(tuple(w.clone() for w in self.weights), tuple(b.clone() for b in self.biases), self.widening)

    def select(self, i: int) -> Networks:
        """The i-th network alone."""
        rows = slice(i, i + 1)
        return Networks(tuple(w[rows] for w in self.weights), tuple(b[rows] for b in self.biases), self.widening)

    def model(self, i: int) -> list[Tensor]:
        """Parameters of the i-th network as `MLP` orders them: weight and bias, layer by layer."""
        weights = [matrix[i].T for matrix in map(self.matrix, range(len(self.weights)))]
        if not self.biases:
            return weights
        return [p for pair in zip(weights, (b[i, 0] for b in self.biases), strict=True) for p in pair]

    def matrix(self, layer: int) -> Tensor:
        """The weight as [models, in, out]."""
        weight = self.weights[layer]
        return weight if self.widening[layer] else weight.mT

    def first(self, x: Tensor) -> Tensor:
        """Pre-activations of the first layer."""
        return self._affine(x, 0)

    def run(self, x: Tensor) -> list[Tensor]:
        """x, the hidden activations, and the outputs [models, rows, 1]."""
        return [x, *self.run_from(self.first(x))]

    def run_from(self, z: Tensor) -> list[Tensor]:
        """The hidden activations and the outputs from the first pre-activations, which are overwritten."""
        values = [z.relu_()]
        for layer in range(1, len(self.weights)):
            z = self._affine(values[-1], layer)
            values.append(z if layer == len(self.weights) - 1 else z.relu_())
        return values

    def signals(self, hidden: Sequence[Tensor]) -> list[Tensor]:
        """δ_l = ∂F/∂(pre-activation of layer l) for every layer, from the hidden activations."""
        signals = [torch.ones_like(hidden[-1][..., :1])]
        for layer in range(len(self.weights) - 1, 0, -1):
            back = torch.bmm(signals[0], self.matrix(layer).mT)
            signals.insert(0, masked(back, hidden[layer - 1]))
        return signals

    def input_gradient(self, signals: Sequence[Tensor]) -> Tensor:
        """∇F = W₁ᵀδ₁."""
        return torch.bmm(signals[0], self.matrix(0).mT)

    def tangents(self, q: Tensor, hidden: Sequence[Tensor], g: Tensor | None = None) -> list[Tensor]:
        """q₀ … q_(L−1) of the module's formula; without g the biases play no part."""
        values = [q]
        for layer, h in enumerate(hidden):
            z = torch.bmm(values[-1], self.matrix(layer))
            if g is not None and self.biases:
                z.addcmul_(g, self.biases[layer])
            values.append(masked(z, h))
        return values

    def add_gradients(
        self, into: Networks, signals: Sequence[Tensor], q: Sequence[Tensor], *, fresh: bool = False
    ) -> None:
        """Add δ_l·q_(l−1)ᵀ, summed over rows, to the gradients of the weights, or replace them."""
        for gradient, wide, signal, value in zip(into.weights, self.widening, signals, q, strict=True):
            left, right = (value, signal) if wide else (signal, value)
            gradient.baddbmm_(left.mT, right, beta=0 if fresh else 1)

    def set_bias_gradients(self, into: Networks, signals: Sequence[Tensor], g: Tensor) -> None:
        """g·δ_l, summed over rows: a prior does not reach the biases, which ∇F does not contain."""
        for gradient, signal in zip(into.biases, signals, strict=bool(into.biases)):
            gradient.baddbmm_(g.mT, signal, beta=0)

    def _affine(self, x: Tensor, layer: int) -> Tensor:
        z = torch.bmm(x, self.matrix(layer))
        return z.add_(self.biases[layer]) if self.biases else z


def masked(values: Tensor, activations: Tensor) -> Tensor:
    """The values where the ReLU is open, 0 elsewhere, as in the backward pass of `torch.relu`; in place."""
    torch.ops.aten.threshold_backward.grad_input(values, activations, 0, grad_input=values)
    return values
