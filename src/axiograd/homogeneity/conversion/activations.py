"""Pointwise activations by their best piece of Proposition 3.8: two straight lines that meet at zero."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from axiograd.homogeneity.conversion.counterpart import Counterpart, fenced

ACTIVATIONS: tuple[type[nn.Module], ...] = (
    nn.CELU,
    nn.ELU,
    nn.GELU,
    nn.Hardshrink,
    nn.Hardswish,
    nn.Hardtanh,
    nn.LogSigmoid,
    nn.Mish,
    nn.ReLU6,
    nn.SELU,
    nn.SiLU,
    nn.Softplus,
    nn.Softshrink,
    nn.Softsign,
    nn.Tanh,
    nn.Tanhshrink,
    nn.Threshold,
)


def two_slopes(x: Tensor, slopes: Tensor) -> Tensor:
    """φ(z) = a₁·z for z > 0 and a₂·z otherwise (Proposition 3.8).

    >>> two_slopes(torch.tensor([-2.0, 2.0]), torch.tensor([1.0, 0.5]))
    tensor([-1.,  2.])
    """
    return x * torch.where(x > 0, slopes[0], slopes[1]).to(x.dtype)


def fit_slopes(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Least squares on the values that the activation sees: aᵢ = Σ φ(z)·z / Σ z² over its side of zero.

    >>> fit_slopes(torch.nn.functional.relu6, torch.tensor([-1.0, 3.0, 12.0]))
    tensor([0.5294, 0.0000], dtype=torch.float64)
    """
    z = x.detach().double().flatten()
    y = function(z.clone())
    default = None
    slopes = []
    for side in (z > 0, z < 0):
        power = z[side].square().sum()
        if power > 0:
            slopes.append((y[side] * z[side]).sum() / power)
        else:
            default = default if default is not None else _normal_slopes(function)
            slopes.append(default[len(slopes)].to(z.device))
    return torch.stack(slopes)


@functools.cache
def _normal_values() -> Tensor:
    quantiles = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    values: Tensor = torch.special.ndtri(quantiles)
    return values


def _normal_slopes(function: Callable[[Tensor], Tensor]) -> Tensor:
    """Slopes for values of which nothing is known: fitted on the standard normal distribution."""
    return fit_slopes(function, _normal_values())


class TwoSlopes(Counterpart):
    """GELU, SiLU, ELU, ReLU6, tanh … → φ(z) = a₁·max(z, 0) + a₂·min(z, 0), slopes fitted at the data's scale.

    >>> activation = TwoSlopes(nn.ELU())
    >>> activation.calibrate(torch.linspace(-1, 1, 101))
    >>> activation.slopes
    tensor([1.0000, 0.7050])
    """

    slopes: Tensor

    def __init__(self, original: nn.Module, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.original = original
        self.training = original.training
        self.register_buffer("slopes", _normal_slopes(self._function).to(dtype))

    def _function(self, x: Tensor) -> Tensor:
        y: Tensor = self.original(x)
        return y

    @torch.no_grad()
    def calibrate(self, x: Tensor, *_args: Any, **_kwargs: Any) -> None:
        self.slopes.lerp_(fit_slopes(self._function, x).to(self.slopes), 1.0 / (self.calls + 1))
        self.calls += 1

    @fenced
    def forward(self, x: Tensor) -> Tensor:
        return two_slopes(x, self.slopes)
