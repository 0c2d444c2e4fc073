"""How stable explanations are: top-k overlap, rank correlation, and the attack that brings them down."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from axiograd.attribution import InputXGradient, XGradient
from axiograd.training.robust_attribution import within

#: Steps of an attack, steps from the middle of the ball to its wall, and the sharpness of the softplus.
ATTACK, LENGTH, SHARPNESS = 20, 10, 10.0


def overlap(a: Tensor, b: Tensor, k: int) -> Tensor:
    """Which share of the k largest features of a are among those of b, for each sample.

    >>> overlap(torch.tensor([[4.0, 3.0, 2.0, 1.0]]), torch.tensor([[4.0, 0.0, 2.0, 1.0]]), k=2)
    tensor([0.5000])
    """
    return (_top(a, k) & _top(b, k)).flatten(1).sum(1) / k


def _top(a: Tensor, k: int) -> Tensor:
    places = a.flatten(1).topk(k).indices
    return torch.zeros_like(a.flatten(1), dtype=torch.bool).scatter(1, places, value=True).view_as(a)


def kendall(a: Tensor, b: Tensor) -> Tensor:
    """Kendall's rank correlation τ_b of each sample's features; pairs that are equal on one side count on neither.

    >>> kendall(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[1.0, 3.0, 2.0]]))
    tensor([0.3333])
    """
    found = []
    for x, y in zip(a.flatten(1).split(1), b.flatten(1).split(1), strict=True):
        signs = [(one[:, :, None] - one[:, None]).sign().flatten() for one in (x, y)]
        found.append(signs[0] @ signs[1] / (signs[0].norm() * signs[1].norm()))
    return torch.stack(found)


def smoothed(model: nn.Sequential) -> nn.Sequential:
    """A copy with softplus for ReLU."""
    return nn.Sequential(*[nn.Softplus(SHARPNESS) if isinstance(m, nn.ReLU) else m for m in copy.deepcopy(model)])


def attacked(model: nn.Sequential, x: Tensor, y: Tensor, epsilon: float, k: int, seed: int) -> Tensor:
    """x′ in the ball, of the same class, whose explanation has few of the top k pixels of that of x.

    Sign descent on the share of these pixels, along the slope of a copy with softplus for ReLU: the network's own
    explanations jump where gates switch, and have no slope there. The best point on the way counts, as judged by the
    network itself; an image whose class was kept at none stays where it was.

    Ghorbani, Abid, Zou: Interpretation of neural networks is fragile, 2019.
    """
    method, smooth = XGradient(model), InputXGradient(smoothed(model))
    before = method.attribute(x, y).abs()
    top = _top(before, k)
    moved, best, least = noisy(x, epsilon, seed), x.clone(), torch.full((len(x),), torch.inf)
    for step in range(ATTACK + 1):
        explanation: Any = method.explain(moved, y)
        shared = overlap(before, explanation.attributions.abs(), k)
        better = (explanation.outputs.argmax(1) == y) & (shared < least)
        best[better], least[better] = moved[better], shared[better]
        if step < ATTACK:
            moved.requires_grad_()
            after = smooth.attribute(moved, y, create_graph=True).abs().flatten(1)
            share = (after * top.flatten(1)).sum(1) / after.sum(1)
            (slope,) = torch.autograd.grad(share.sum(), moved)
            moved = within(x, moved.detach() - epsilon / LENGTH * slope.sign(), epsilon)
    return best


def noisy(x: Tensor, epsilon: float, seed: int) -> Tensor:
    """x with noise uniform in the ball."""
    noise = 2 * torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) - 1
    return within(x, x + epsilon * noise, epsilon)
