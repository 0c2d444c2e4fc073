"""Brute force in float64, independent of the library's code."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn


def integrated_gradients(score: Callable[[Tensor], Tensor], x: Tensor, baseline: Tensor, n: int = 512) -> Tensor:
    """Gauss-Legendre quadrature, one point at a time."""
    total = torch.zeros_like(x)
    for node, weight in zip(*_points(n), strict=True):
        point = (baseline + node * (x - baseline)).detach().requires_grad_()
        total += weight * torch.autograd.grad(score(point).sum(), point)[0]
    return (x - baseline) * total


def integrated_gradients_at_once(
    score: Callable[[Tensor], Tensor], x: Tensor, baseline: Tensor, panels: int, order: int = 16
) -> Tensor:
    """The same for models whose rows do not meet: Gauss-Legendre in each of many panels, whose points are a batch."""
    nodes, weights = (torch.tensor(values, dtype=x.dtype) for values in _points(order))
    total = torch.zeros_like(x)
    for panel in range(panels):
        at = ((panel + nodes) / panels).reshape(-1, *[1] * x.dim())
        points = (baseline + at * (x - baseline)).detach().requires_grad_()
        (gradients,) = torch.autograd.grad(score(points.flatten(0, 1)).sum(), points)
        total += torch.tensordot(weights / panels, gradients, 1)
    return (x - baseline) * total


@cache
def _points(n: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return (nodes + 1) / 2, weights / 2


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
