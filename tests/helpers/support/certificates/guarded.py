"""Divisors with epsilons of the usual size, for random networks."""

import torch
import torch.nn.functional as F

#: Makes the entries of a row differ: the deviation of equal ones is nothing but rounding.
MIXED = torch.randn(4, 4, generator=torch.Generator().manual_seed(11), dtype=torch.float64)


def _last_norm(x):
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def _own_deviation(a, b):
    return a * (b - b.mean(-1, keepdim=True)) / torch.sqrt(b.var(-1, keepdim=True) + 1e-5)


def _normalised_attention(a, b, c):
    weights = (a @ b.transpose(1, 2)).relu()
    return weights @ c / (weights.sum(-1, keepdim=True) + 1e-6)


#: Divisors with epsilons of the usual size; the first ones only look homogeneous.
GUARDED = {
    "guard: mean of relu": lambda a, b, c: a * b / (c.relu().mean(-1, keepdim=True) + 1e-6),
    "guard: norm": lambda a, b, c: a * b / _last_norm(c).clamp_min(1e-12),
    "guard: root": lambda a, b, c: a * torch.rsqrt(b.square().mean(-1, keepdim=True) + 1e-5),
    "guard: deviation": lambda a, b, c: a * b / ((c @ MIXED).std(-1, keepdim=True) + 1e-8),
    "guard: rows over columns": lambda a, b, c: a * b / (torch.linalg.vector_norm(b[0], dim=-1) + 1e-8),
    "guard: two norms": lambda a, b, c: a * b * c / (_last_norm(a) * _last_norm(b) + 1e-8),
    "guard: own mean of relu": lambda a, b, c: a * b.relu() / (b.relu().mean(-1, keepdim=True) + 1e-6),
    "guard: own norm": lambda a, b, c: a * b / (_last_norm(b) + 1e-12),
    "guard: own root": lambda a, b, c: a * b.relu() * torch.rsqrt(b.relu().square().mean(-1, keepdim=True) + 1e-5),
    "guard: own deviation": lambda a, b, c: _own_deviation(a, b @ MIXED),
    "guard: own largest": lambda a, b, c: a * b / b.abs().amax(-1, keepdim=True).clamp_min(1e-8),
    "guard: attention": _normalised_attention,
    "guard: layer_norm": lambda a, b, c: a * F.layer_norm((b @ MIXED).relu(), b.shape[-1:], eps=1e-5),
    "guard: rms_norm": lambda a, b, c: a * F.rms_norm(b.relu(), b.shape[-1:], eps=1e-6),
}
