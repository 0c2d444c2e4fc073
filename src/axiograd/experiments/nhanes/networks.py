"""The six models of Figure 1, many ReLU networks of one shape at a time: every product is batched over the models.

    L = mean binary cross-entropy of the logit F + λ·Ω(A),    Ω = −Gini of the mean over the batch of |A|,

with A = 0 (no prior), x·∇F (X-Gradient), ∇F (Grad), ∇(log p + log(1 − p)) (RRR), or, for EG with n references r,
the mean of (x − r)·∇F(r + α(x − r)).

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

from axiograd.errors import ConfigurationError
from axiograd.experiments.loop import PriorOn
from axiograd.models import MLP


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


#: Rows of one pass over the paths of EG: enough for fast products, few enough to stay in the caches.
ROWS_AT_ONCE = 400


#: The bars of Figure 1 (left): which attribution the prior is on, and whether the network is an X-DNN.
METHODS = {
    "unregularised": PriorOn("Unreg"),
    "unregularised-x": PriorOn("Unreg w/o bias", homogeneous=True),
    "rrr": PriorOn("RRR", "log-gradient", outputs=None),
    "grad": PriorOn("Grad", "gradient", outputs=None),
    "eg": PriorOn("EG", "expected-gradients", outputs=None),
    "x-gradient": PriorOn("X-Gradient w/o bias", "x-gradient", homogeneous=True, outputs=None),
}


@dataclass(frozen=True)
class Draws:
    """Of each model and reference: the training row that each row is paired with, and how far along the path.

    Drawn as `axiograd.attribution.ExpectedGradients` draws from a generator of its own per model.
    """

    rows: Tensor  # [models, references, rows]
    alphas: Tensor  # [models, references, rows]

    @classmethod
    def draw(cls, generators: Sequence[torch.Generator], references: int, n: int, dtype: torch.dtype) -> Draws:
        """One training step's."""
        rows, alphas = [], []
        for generator in generators:
            rows.append(torch.cat([torch.randperm(n, generator=generator) for _ in range(references)]))
            alphas.append(torch.rand(references, n, generator=generator, dtype=torch.float64).to(dtype))
        return cls(torch.stack(rows).unflatten(1, (references, n)), torch.stack(alphas))


def gini_gradient(mean: Tensor) -> Tensor:
    """∂Ω/∂ā for each model's ā ≥ 0 [models, features], with Ω = −Σᵢ āᵢ·(smaller − larger) / (n·Σ ā).

    >>> gini_gradient(torch.tensor([[0.0, 0.0, 0.0, 1.0]]))
    tensor([[1., 1., 1., 0.]])
    """
    n = mean.shape[1]
    ordered = mean.sort(1).values
    # Counts by value, so that ties share fairly.
    smaller, not_larger = torch.searchsorted(ordered, mean), torch.searchsorted(ordered, mean, right=True)
    # As shares, and converted before they are divided: torch divides integers in float32.
    shares = (smaller + not_larger - n).to(mean.dtype) / n
    total = mean.sum(1, keepdim=True)
    # Where nothing is attributed there is nothing to divide by: axiograd.priors.Gini divides by 1.
    dead = total < torch.finfo(mean.dtype).tiny
    whole = torch.where(dead, 1, total)
    coefficient = torch.where(dead, 0, (mean / whole * shares).sum(1, keepdim=True))
    return (coefficient - shares) / whole


def gradients(
    networks: Networks,
    into: Networks,
    x: Tensor,
    targets: Tensor,
    *,
    method: PriorOn,
    weight: float = 0.0,
    draws: Draws | None = None,
) -> None:
    """The gradient of each model's loss by its parameters, written into `into`; x [models, rows, features]."""
    if (method.attribution == "expected-gradients") != (draws is not None):
        raise ConfigurationError(f"{method.label}: draws of references are for EG, and EG needs them.")
    z = networks.first(x)
    _, *hidden, output = [x, *networks.run_from(z if draws is None else z.clone())]
    signals = networks.signals(hidden)
    p = output.sigmoid()
    g = (p - targets.unsqueeze(2)) / x.shape[1]
    if method.attribution in {None, "expected-gradients"}:
        q = [g * h for h in (x, *hidden)]
    else:
        v, g = _single_pass(method, networks.input_gradient(signals), x, p, g, weight)
        q = networks.tangents(torch.addcmul(v, g, x), hidden, g)
    networks.add_gradients(into, signals, q, fresh=True)
    networks.set_bias_gradients(into, signals, g)
    if draws is not None:
        _add_expected_gradients(networks, into, x, z, draws, weight)


def _single_pass(
    method: PriorOn, gradient: Tensor, x: Tensor, p: Tensor, g: Tensor, weight: float
) -> tuple[Tensor, Tensor]:
    """v and g of λ·Ω and the task together, for an attribution s·∇F with s = x, 1, or φ′(F) = 1 − 2p."""
    if method.attribution == "x-gradient":
        return x * _pull(x * gradient, weight), g
    if method.attribution == "gradient":
        return _pull(gradient, weight), g
    slope = 1 - 2 * p
    u = _pull(slope * gradient, weight)
    # φ(F) = log p + log(1 − p) is not linear in F: φ″ = −2p(1 − p).
    return slope * u, g - 2 * p * (1 - p) * (u * gradient).sum(2, keepdim=True)


def _pull(attributions: Tensor, weight: float) -> Tensor:
    """λ·∂Ω/∂A."""
    slopes = gini_gradient(attributions.abs().mean(1)) * (weight / attributions.shape[1])
    return attributions.sign().mul_(slopes.unsqueeze(1))


def _add_expected_gradients(
    networks: Networks, into: Networks, x: Tensor, z: Tensor, draws: Draws, weight: float
) -> None:
    """Add the gradient of λ·Ω of EG; z are the first pre-activations of x.

    References are training rows, so those of the points on the paths are means of z's rows: no product is needed.
    """
    models, n, _ = x.shape
    references = draws.rows.shape[1]
    at_once = max(1, ROWS_AT_ONCE // n)
    offsets = torch.arange(models).reshape(-1, 1, 1) * n
    attributions = torch.zeros_like(x)
    passes = []
    for chunk in (slice(i, i + at_once) for i in range(0, references, at_once)):
        rows = (draws.rows[:, chunk] + offsets).flatten()
        alphas = draws.alphas[:, chunk].unsqueeze(3)
        shape = (models, -1, n)
        difference = x.unsqueeze(1) - x.flatten(0, 1).index_select(0, rows).unflatten(0, shape)
        points = z.flatten(0, 1).index_select(0, rows).unflatten(0, shape).lerp_(z.unsqueeze(1), alphas)
        hidden = networks.run_from(points.flatten(1, 2))[:-1]
        signals = networks.signals(hidden)
        by_reference = networks.input_gradient(signals).view_as(difference) * difference
        attributions += by_reference.sum(1)
        passes.append((difference, hidden, signals))
    u = _pull(attributions / references, weight / references).unsqueeze(1)
    for difference, hidden, signals in passes:
        q = networks.tangents(difference.mul_(u).flatten(1, 2), hidden)
        networks.add_gradients(into, signals, q)
