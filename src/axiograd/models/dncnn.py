"""DnCNN, a denoiser, regular (biases, BatchNorm) and X (neither means nor shifts) from one definition."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ScaleNorm2d(nn.Module):
    """BatchNorm without mean and shift: y = γ·x / (σ + ε), with the running σ in evaluation mode.

    In evaluation mode it is linear, so it keeps the degree; in training mode it divides by the batch's own σ.

    >>> norm = ScaleNorm2d(4).eval()
    >>> x = torch.randn(2, 4, 3, 3)
    >>> torch.allclose(norm(2 * x), 2 * norm(x))
    True
    """

    running_var: Tensor

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.eps, self.momentum = eps, momentum
        self.register_load_state_dict_pre_hook(drop_zero_shifts)  # type: ignore[no-untyped-call]  # torch has no types here

    def forward(self, x: Tensor) -> Tensor:
        variance = self.running_var
        if self.training:
            variance = x.var(dim=(0, 2, 3), correction=0)
            self.running_var.lerp_(variance.detach(), self.momentum)
        return x * (self.weight / (variance.sqrt() + self.eps))[:, None, None]


def drop_zero_shifts(_module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Accept BatchNorm's keys where mean and shift are zero; other values stay and are reported."""
    state.pop(f"{prefix}num_batches_tracked", None)
    for name in ("bias", "running_mean"):
        value = state.get(f"{prefix}{name}")
        if value is not None and not torch.count_nonzero(value):
            del state[f"{prefix}{name}"]


class DnCNN(nn.Module):
    """A denoiser that predicts the noise: f(x) = x − net(x); `homogeneous=True` gives f(αx) = αf(x).

    >>> model = DnCNN(in_channels=1, homogeneous=True, depth=4, width=8).eval()
    >>> x = torch.rand(1, 1, 12, 12)
    >>> torch.allclose(model(0.5 * x), 0.5 * model(x), atol=1e-6)
    True
    """

    def __init__(self, in_channels: int = 1, *, homogeneous: bool = False, depth: int = 20, width: int = 64) -> None:
        super().__init__()
        bias = not homogeneous
        norm = ScaleNorm2d if homogeneous else nn.BatchNorm2d
        self.first_layer = nn.Conv2d(in_channels, width, 3, padding=1, bias=bias)
        # BatchNorm subtracts what a bias here would add, so the hidden convolutions have none in either form.
        hidden = [nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(depth - 2)]
        self.hidden_layer_list = nn.ModuleList(hidden)
        self.bn_layer_list = nn.ModuleList(norm(width) for _ in hidden)
        self.last_layer = nn.Conv2d(width, in_channels, 3, padding=1, bias=bias)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.first_layer(x))
        for convolve, norm in zip(self.hidden_layer_list, self.bn_layer_list, strict=True):
            out = F.relu(norm(convolve(out)))
        noise: Tensor = self.last_layer(out)
        return x - noise
