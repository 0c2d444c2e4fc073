"""Transformers for texts and images, regular and X from one definition.

Built homogeneous, gates have degree 0 and signals have degree 1: attention is a softmax
over normalised queries and keys (and relative positions, which are constants) times values, norms give back the scale
that they take, there are no biases, and the perceptron has ReLUs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from axiograd.errors import ConfigurationError

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
        found: Tensor = self.out((logits.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, dim))
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


def _check(dim: int, heads: int) -> None:
    if dim % heads:
        raise ConfigurationError(f"dim={dim} must be a multiple of heads={heads}.")


class TextEncoder(nn.Module):
    """Embedding, blocks, norm, mean over the tokens that count, linear: an encoder as BERT is one, small.

    Regular, it has learned positions, LayerNorm, GELU and biases. Built homogeneous, positions are in the attention's
    logits alone, and F is of degree 1 in the embeddings: `axiograd.XGradient(model, layer="embedding")`.

    >>> model = TextEncoder(num_classes=2, vocabulary=50, dim=8, depth=1, heads=2, homogeneous=True).eval()
    >>> h = torch.randn(1, 5, 8)
    >>> torch.allclose(model(inputs_embeds=3 * h), 3 * model(inputs_embeds=h), atol=1e-5)
    True
    """

    #: What `axiograd.text.explain` asks it.
    task = "sequence"

    def __init__(
        self,
        num_classes: int = 2,
        vocabulary: int = 8192,
        *,
        homogeneous: bool = False,
        dim: int = 64,
        depth: int = 2,
        heads: int = 4,
        longest: int = 128,
    ) -> None:
        super().__init__()
        _check(dim, heads)
        self.embedding = nn.Embedding(vocabulary, dim)
        nn.init.normal_(self.embedding.weight)
        self.positions = None if homogeneous else nn.Parameter(0.02 * torch.randn(longest, dim))
        places = torch.arange(longest)
        relative = (places[None, :] - places[:, None]).clamp(-16, 16) + 16
        positions = 17 + min(16, longest - 1)
        self.blocks = nn.ModuleList(
            Block(dim, heads, relative, positions, homogeneous=homogeneous) for _ in range(depth)
        )
        self.norm = norm(dim, homogeneous=homogeneous)
        self.head = nn.Linear(dim, num_classes, bias=not homogeneous)

    def get_input_embeddings(self) -> nn.Module:
        """The module that embeds tokens, under Hugging Face's name."""
        return self.embedding

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        if (input_ids is None) == (inputs_embeds is None):
            raise ConfigurationError("TextEncoder takes either input_ids or inputs_embeds.")
        x = self.embedding(input_ids) if inputs_embeds is None else inputs_embeds
        kept = None if attention_mask is None else attention_mask.bool()
        if self.positions is not None:
            x = x + self.positions[: x.shape[1]]
        for block in self.blocks:
            x = block(x, kept)
        x = self.norm(x, kept)
        if kept is None:
            return self.head(x.mean(1))  # type: ignore[no-any-return]  # a module's call
        weights = kept[:, :, None].to(x.dtype)
        return self.head((x * weights).sum(1) / weights.sum(1).clamp_min(1))  # type: ignore[no-any-return]  # as above


class ViT(nn.Module):
    """Patches, blocks, norm, mean over patches, linear: a vision transformer, small.

    Built homogeneous, it is of degree 1 in the pixels: patches are embedded without a bias, and positions are factors
    of the embeddings, x ⊙ (1 + p), and relative ones in the attention's logits.

    >>> model = ViT(num_classes=2, in_channels=1, image_size=8, patch=4, dim=8, depth=1, heads=2, homogeneous=True)
    >>> x = torch.randn(1, 1, 8, 8)
    >>> torch.allclose(model(3 * x), 3 * model(x), atol=1e-5)
    True
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 3,
        *,
        homogeneous: bool = False,
        image_size: int = 32,
        patch: int = 4,
        dim: int = 64,
        depth: int = 3,
        heads: int = 4,
    ) -> None:
        super().__init__()
        _check(dim, heads)
        if image_size % patch:
            raise ConfigurationError(f"image_size={image_size} must be a multiple of patch={patch}.")
        side = image_size // patch
        self.embedding = nn.Conv2d(in_channels, dim, patch, patch, bias=not homogeneous)
        self.homogeneous = homogeneous
        self.positions = nn.Parameter(0.02 * torch.randn(side**2, dim))
        grid = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")).flatten(1)
        away = grid[:, None, :] - grid[:, :, None] + side - 1
        relative = away[0] * (2 * side - 1) + away[1]
        positions = (2 * side - 1) ** 2
        self.blocks = nn.ModuleList(
            Block(dim, heads, relative, positions, homogeneous=homogeneous) for _ in range(depth)
        )
        self.norm = norm(dim, homogeneous=homogeneous)
        self.head = nn.Linear(dim, num_classes, bias=not homogeneous)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x).flatten(2).transpose(1, 2)
        # A sum with constants has no degree; a product with them keeps it.
        x = x * (1 + self.positions) if self.homogeneous else x + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))  # type: ignore[no-any-return]  # a module's call
