"""Brute force in float64, independent of the library's code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn


def integrated_gradients(score: Callable[[Tensor], Tensor], x: Tensor, baseline: Tensor, n: int = 512) -> Tensor:
    """Gauss-Legendre quadrature, one point and one sample at a time."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    total = torch.zeros_like(x)
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        point = (baseline + node * (x - baseline)).detach().requires_grad_()
        total += weight * torch.autograd.grad(score(point).sum(), point)[0]
    return (x - baseline) * total


def directional_derivative(function: Callable[[], float], network: nn.Module, seed: int = 0, h: float = 1e-7) -> tuple:
    """Central difference of ``function`` along a random direction in the parameters, and that direction."""
    generator = torch.Generator().manual_seed(seed)
    parameters = list(network.parameters())
    direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]

    def at(step: float) -> float:
        with torch.no_grad():
            for p, d in zip(parameters, direction, strict=True):
                p.add_(d, alpha=step)
        value = function()
        with torch.no_grad():
            for p, d in zip(parameters, direction, strict=True):
                p.sub_(d, alpha=step)
        return value

    return (at(h) - at(-h)) / (2 * h), direction
