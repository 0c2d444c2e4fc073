"""Small networks in float64, seeded, that the tests share."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Residual(nn.Module):
    def __init__(self, channels: int, *, bias: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=bias)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.conv2(F.relu(self.conv1(x))))


class Attention(nn.Module):
    """Tokens → scaled-dot-product attention → mean; not homogeneous."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (2, -1)).transpose(1, 2).chunk(3, dim=-1)
        return self.head(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def _cnn(activation: nn.Module, *, bias: bool) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, bias=bias),
        activation,
        nn.MaxPool2d(2),
        nn.Conv2d(6, 6, 3, padding=1, bias=bias),
        nn.ReLU(inplace=True),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 3, bias=bias),
    )


_IMAGE, _TOKENS, _ROW = (2, 10, 10), (4, 6), (7,)

#: name -> (builder, shape of one sample). Degree 1, without biases.
HOMOGENEOUS = {
    "mlp": (lambda: mlp(bias=False), _ROW),
    "cnn": (lambda: _cnn(nn.ReLU(), bias=False), _IMAGE),
    "prelu": (lambda: _cnn(nn.PReLU(6, init=0.3), bias=False), _IMAGE),
    "leaky": (lambda: _cnn(nn.LeakyReLU(0.2), bias=False), _IMAGE),
    "residual": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 6, 3, bias=False),
            Residual(6, bias=False),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(24, 3, bias=False),
        ),
        _IMAGE,
    ),
}

#: Regular networks: biases, smooth activations, normalisation, attention, recurrence.
REGULAR = {
    "linear": (lambda: mlp(bias=True), _ROW),
    "convolution and max-pool": (lambda: _cnn(nn.ReLU(), bias=True), _IMAGE),
    "gelu": (lambda: _cnn(nn.GELU(), bias=True), _IMAGE),
    "layer norm": (lambda: nn.Sequential(nn.Linear(7, 9), nn.LayerNorm(9), nn.Tanh(), nn.Linear(9, 3)), _ROW),
    "attention": (Attention, _TOKENS),
    "lstm": (Recurrent, _TOKENS),
    "batch norm": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(256, 3)
        ),
        _IMAGE,
    ),
}


def mlp(*, bias: bool, sizes: tuple[int, ...] = (7, 16, 8, 3)) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out, bias=bias), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def build(name: str, *, batch: int = 4, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """A network in eval mode and a batch for it, both in float64."""
    builder, shape = {**HOMOGENEOUS, **REGULAR}[name]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = builder().double().eval()
        return network, torch.randn(batch, *shape, dtype=torch.float64)
