"""Transformer blocks, regular and built to be homogeneous, from one definition.

Built so, everything that decides has degree 0 and everything that flows has degree 1: attention is a softmax over
normalised queries and keys (and relative positions, which are constants) times values, norms give back the scale that
they take, there are no biases, and the perceptron has ReLUs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

#: Of a sample's mean square, added to a token's: tokens that are nearly zero are not blown up.
_FLOOR = 1e-4


def _sizes(x: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mean square of each sample over the tokens that count, and what each token's is of it, plus a floor.

    The first has degree 2, the second degree 0. An input of zeros has an infinite one, by which all becomes zero.
    """
    squares = x.square().mean(-1, keepdim=True)
    if kept is None:
        whole = squares.mean(-2, keepdim=True)
    else:
        weights = kept.reshape(len(kept), *[1] * (x.dim() - 3), -1, 1).to(x.dtype)
        whole = (squares * weights).sum(-2, keepdim=True) / weights.sum(-2, keepdim=True).clamp_min(1)
    whole = torch.where(whole == 0, math.inf, whole)
    return whole, squares / whole + _FLOOR


class ScaleKeepingNorm(nn.Module):
    """xₜ · RMS(x)/RMS(xₜ) · g: all tokens get one size, which is the sample's, so that the degree stays 1.

    >>> norm, x = ScaleKeepingNorm(4), torch.randn(2, 3, 4)
    >>> torch.allclose(norm(5 * x), 5 * norm(x), atol=1e-5)
    True
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor, kept: Tensor | None = None) -> Tensor:
        return x * _sizes(x, kept)[1].rsqrt() * self.weight


class _LayerNorm(nn.LayerNorm):
    def forward(self, x: Tensor, kept: Tensor | None = None) -> Tensor:  # noqa: ARG002 - of no importance to it
        return super().forward(x)


def norm(dim: int, *, homogeneous: bool) -> nn.Module:
    """LayerNorm, or the one that keeps the scale."""
    return ScaleKeepingNorm(dim) if homogeneous else _LayerNorm(dim)


class Attention(nn.Module):
    """softmax(q·k/√d + bᵢ₋ⱼ)·v; homogeneous: softmax(τ·q̂·k̂ + bᵢ₋ⱼ)·v with q̂, k̂ of degree 0, and no biases.

    `relative` holds the number of the relative position of each pair of tokens, [tokens, tokens], below `positions`.
    """

    relative: Tensor

    def __init__(self, dim: int, heads: int, relative: Tensor, positions: int, *, homogeneous: bool) -> None:
        super().__init__()
        self.heads, self.homogeneous = heads, homogeneous
        self.qkv = nn.Linear(dim, 3 * dim, bias=not homogeneous)
        self.out = nn.Linear(dim, dim, bias=not homogeneous)
        self.register_buffer("relative", relative, persistent=False)
        self.bias = nn.Parameter(torch.zeros(heads, positions))
        self.temperature = nn.Parameter(torch.full((heads, 1, 1), 4.0)) if homogeneous else None
        #: The last call's weights, kept only while somebody asks for them.
        self.keeps, self.weights = False, None

    def forward(self, x: Tensor, kept: Tensor | None = None) -> Tensor:
        batch, tokens, dim = x.shape
        q, k, v = self.qkv(x).reshape(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.temperature is None:
            logits = q @ k.transpose(-1, -2) / math.sqrt(dim // self.heads)
        else:
            logits = self.temperature * (_directions(q, kept) @ _directions(k, kept).transpose(-1, -2))
        logits = logits + self.bias[:, self.relative[:tokens, :tokens]]
        if kept is not None:
            logits = logits.masked_fill(~kept[:, None, None, :], -math.inf)
        attention = logits.softmax(-1)
        if self.keeps:
            self.weights = attention
        found: Tensor = self.out((attention @ v).transpose(1, 2).reshape(batch, tokens, dim))
        return found


def _directions(x: Tensor, kept: Tensor | None) -> Tensor:
    """x/‖x‖ per token, degree 0."""
    whole, share = _sizes(x, kept)
    return x * (whole.rsqrt() * share.rsqrt()) / math.sqrt(x.shape[-1])


class Block(nn.Module):
    """x + attention(norm(x)), and then x + perceptron(norm(x))."""

    def __init__(self, dim: int, heads: int, relative: Tensor, positions: int, *, homogeneous: bool) -> None:
        super().__init__()
        self.before = norm(dim, homogeneous=homogeneous)
        self.attention = Attention(dim, heads, relative, positions, homogeneous=homogeneous)
        self.between = norm(dim, homogeneous=homogeneous)
        self.first = nn.Linear(dim, 2 * dim, bias=not homogeneous)
        self.second = nn.Linear(2 * dim, dim, bias=not homogeneous)
        self.homogeneous = homogeneous

    def forward(self, x: Tensor, kept: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.before(x, kept), kept)
        hidden = self.first(self.between(x, kept))
        found: Tensor = x + self.second(F.relu(hidden) if self.homogeneous else F.gelu(hidden))
        return found
