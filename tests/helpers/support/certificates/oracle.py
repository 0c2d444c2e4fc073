"""Brute force: does a function scale with one power of α, in float64?"""

import math

import torch
from torch import Tensor

ALPHAS = (0.5, 0.8, 1.25, 2.0)


def scales(function, inputs, degree, *, tolerance=1e-9, seed=0):
    """Largest error of F(αx) = αᵏF(x) relative to F's own size, over several α."""
    base = evaluate(function, inputs, 1.0, seed)
    worst = 0.0
    for alpha in ALPHAS:
        worst = max(worst, _error(evaluate(function, inputs, alpha, seed), base * alpha**degree))
    return worst <= tolerance, worst


def refutes_every_degree(function, inputs, *, seed=0):
    """True if no power of α fits: the best one, from the ratio at one α, fails at the others."""
    base, twice = (evaluate(function, inputs, alpha, seed) for alpha in (1.0, 2.0))
    ratio = twice.abs().sum() / base.abs().sum()
    if not bool(torch.isfinite(ratio)) or ratio <= 0:
        return True
    fits, _ = scales(function, inputs, math.log2(float(ratio)), tolerance=1e-6, seed=seed)
    return not fits


def evaluate(function, inputs, alpha, seed):
    torch.manual_seed(seed)
    scaled = [x * alpha if isinstance(x, Tensor) and x.is_floating_point() else x for x in inputs]
    out = function(*scaled)
    return (torch.view_as_real(out.resolve_conj()) if out.is_complex() else out).detach().to(torch.float64)


def _error(a, b):
    same = (a == b) | (a.isnan() & b.isnan())
    gap = torch.where(same, 0.0, (a - b).abs())
    size = torch.where(b.isfinite(), b.abs(), 0.0).max() if b.numel() else torch.tensor(1.0)
    worst = gap.max() if gap.numel() else torch.tensor(0.0)
    return math.inf if bool(worst.isnan()) else float(worst / size.clamp_min(1e-300)) if worst > 0 else 0.0
