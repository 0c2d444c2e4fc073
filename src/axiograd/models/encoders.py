"""Transformers for texts and images, regular and X from one definition."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from axiograd.errors import ConfigurationError
from axiograd.models.attention import Block, norm


def _check(dim: int, heads: int) -> None:
    if dim % heads:
        raise ConfigurationError(f"dim={dim} is not a multiple of heads={heads}.")


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
            raise ConfigurationError(f"image_size={image_size} is not a multiple of patch={patch}.")
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
