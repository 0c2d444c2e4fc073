"""Sigmoid, softmax and other gates: a value between two numbers that multiplies the signal, of degree 0."""

from typing import Any

import torch
from torch import Tensor, nn

from axiograd.homogeneity.conversion.counterpart import Scaled, fenced
from axiograd.homogeneity.conversion.scale import unscaled

GATES: tuple[type[nn.Module], ...] = (
    nn.Hardsigmoid,
    nn.LogSoftmax,
    nn.Sigmoid,
    nn.Softmax,
    nn.Softmax2d,
    nn.Softmin,
)


class NormalisedGate(Scaled):
    """σ(s) → σ(s/ρ), ρ = RMS(s)/r: degree 0, and σ(s) itself at the data's scale; ρ·σ(s/ρ), degree 1, where no gate.

    >>> gate = NormalisedGate(nn.Sigmoid())
    >>> s = torch.tensor([[1.0, -1.0]])
    >>> gate(s), gate(10 * s)
    (tensor([[0.7311, 0.2689]]), tensor([[0.7311, 0.2689]]))
    """

    def __init__(self, gate: nn.Module, *, degree: float = 0.0, reference: Tensor | None = None) -> None:
        super().__init__()
        self.gate = gate
        self.degree = degree
        self.training = gate.training
        self.start(reference)

    @fenced
    def forward(self, s: Tensor) -> Tensor:
        rho = self.ratio(s)
        unit = unscaled(s, rho)
        # torch has no second derivative for hardsigmoid, which a prior on attributions needs
        value: Tensor = (unit / 6 + 0.5).clamp(0, 1) if isinstance(self.gate, nn.Hardsigmoid) else self.gate(unit)
        return value if self.degree == 0 else rho * value


class NormalisedGLU(Scaled):
    """GLU: a·σ(b) → a·σ(b/ρ), ρ = RMS(b)/r.

    >>> NormalisedGLU(nn.GLU())(torch.tensor([[3.0, 1.0]]))
    tensor([[2.1932]])
    """

    def __init__(self, original: nn.GLU, reference: Tensor | None = None) -> None:
        super().__init__()
        self.dim = original.dim
        self.training = original.training
        self.start(reference)

    def calibrate(self, x: Tensor, *_args: Any, **_kwargs: Any) -> None:
        super().calibrate(x.chunk(2, self.dim)[1])

    @fenced
    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, self.dim)
        return a * torch.sigmoid(self.at_data_scale(b))
