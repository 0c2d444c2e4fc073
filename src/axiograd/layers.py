"""Layers with biases that leave a network an X-DNN: a bias b becomes b·m(x)/m̄, carried by the signal it is added to.

m(x) = mean |x| over all values of a sample has degree 1 and is piecewise linear, and so is x + b·m(x)/m̄: networks of
such layers are certified X-DNNs, exact and piecewise linear. m̄ is the typical m: 1 in a network that is trained from
scratch, and the mean over examples in one that was trained before, where b·m(x)/m̄ is then about b.

The paper supposes that networks without biases "learn some kind of layer averaging strategy that compensates for the
missing bias" (section 4.1); here they are given that average.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from axiograd.errors import ConfigurationError, InputError


def mean_size(x: Tensor) -> Tensor:
    """m(x) = mean |x| of each sample, with its dimensions kept.

    >>> mean_size(torch.tensor([[3.0, -1.0], [0.0, 0.0]]))
    tensor([[2.],
            [0.]])
    """
    return x.abs().mean(tuple(range(1, x.dim())), keepdim=True)


def carry(x: Tensor, bias: Tensor | None, typical: Tensor | float = 1.0) -> Tensor:
    """x + b·m(x)/m̄, or x where there is no bias; b has a shape that broadcasts to x.

    >>> carry(torch.tensor([[3.0, -1.0]]), torch.tensor([0.5, 0.0]))
    tensor([[ 4., -1.]])
    """
    return x if bias is None else x + bias * (mean_size(x) / typical)


def affine_layers(
    *, homogeneous: bool, biases: str = "none"
) -> tuple[Callable[..., nn.Module], Callable[..., nn.Module]]:
    """Convolution and linear layer of a regular network, of an X-DNN without biases, or of one with carried biases.

    >>> convolution, _ = affine_layers(homogeneous=True, biases="carried")
    >>> convolution(3, 4, 3)
    CarriedConv2d(3, 4, kernel_size=(3, 3), stride=(1, 1))
    """
    if biases not in {"none", "carried"} or (biases == "carried" and not homogeneous):
        raise ConfigurationError(
            f"biases={biases!r}: an X-DNN (homogeneous=True, the names with an x) has biases 'none' or 'carried'; a "
            "regular network has its own."
        )
    if biases == "carried":
        return CarriedConv2d, CarriedLinear
    return partial(nn.Conv2d, bias=not homogeneous), partial(nn.Linear, bias=not homogeneous)


def over_channels(values: Tensor, x: Tensor) -> Tensor:
    """One value per channel, dimension 1 of x, in a shape that broadcasts to x."""
    return values.view([-1] + [1] * (x.dim() - 2))


class CarriedBias(nn.Module):
    """x + b·m(x)/m̄ in place of x + b; one b for each channel, or one for all.

    >>> layer = CarriedBias(4)
    >>> _ = nn.init.ones_(layer.bias)
    >>> x = torch.randn(2, 4)
    >>> torch.allclose(layer(3 * x), 3 * layer(x), atol=1e-5)
    True
    """

    typical: Tensor

    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("typical", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return carry(x, over_channels(self.bias, x), self.typical)

    def extra_repr(self) -> str:
        return str(len(self.bias))


class CarriedLinear(nn.Linear):
    """W x + b·m(W x)/m̄, with the keys of nn.Linear and `typical`.

    >>> layer, x = CarriedLinear(3, 2), torch.randn(4, 3)
    >>> torch.allclose(layer(3 * x), 3 * layer(x), atol=1e-5)
    True
    """

    typical: Tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("typical", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return carry(F.linear(x, self.weight), self.bias, self.typical)


class _CarriedConv(_ConvNd):
    """W ∗ x + b·m(W ∗ x)/m̄, with the keys of a convolution and `typical`."""

    typical: Tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("typical", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self._conv_forward(x, self.weight, None)
        return carry(made, None if self.bias is None else over_channels(self.bias, made), self.typical)


class CarriedConv1d(_CarriedConv, nn.Conv1d):
    """`nn.Conv1d` with a carried bias."""


class CarriedConv2d(_CarriedConv, nn.Conv2d):
    """`nn.Conv2d` with a carried bias.

    >>> layer, x = CarriedConv2d(3, 5, 3), torch.randn(2, 3, 8, 8)
    >>> torch.allclose(layer(3 * x), 3 * layer(x), atol=1e-5)
    True
    """


class CarriedConv3d(_CarriedConv, nn.Conv3d):
    """`nn.Conv3d` with a carried bias."""


class CarriedBatchNorm(nn.Module):
    """BatchNorm whose mean and shift are carried: y = γ·(x − μ·c)/√(v + ε) + β·c, c = m(x)/m̄.

    In train mode μ, v and m̄ are those of the batch, in eval mode running means, as in BatchNorm; so it is of degree 1
    and piecewise linear in eval mode. Train with an attribution prior in eval mode, as with any batch norm: the
    attribution of one sample must not depend on the rest of the batch.

    >>> norm, x = CarriedBatchNorm(4).eval(), torch.randn(8, 4, 5, 5)
    >>> torch.allclose(norm(3 * x), 3 * norm(x), atol=1e-5)
    True
    """

    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor
    running_var: Tensor
    running_size: Tensor
    num_batches_tracked: Tensor

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, *, affine: bool = True
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.register_parameter("weight", nn.Parameter(torch.ones(num_features)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(num_features)) if affine else None)
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))
        self.register_buffer("running_size", torch.ones(()))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        size = mean_size(x)
        mean, variance, typical = self.running_mean, self.running_var, self.running_size
        if self.training:
            values = x.numel() // x.shape[1]
            if values < 2:  # noqa: PLR2004
                raise InputError(
                    f"batch norm in train mode needs more than one value per channel, got {tuple(x.shape)}."
                )
            variance, mean = torch.var_mean(x, [d for d in range(x.dim()) if d != 1], correction=0)
            typical = size.mean().clamp_min(torch.finfo(x.dtype).tiny)
            self._update(mean, variance, typical, values)
        scale = torch.rsqrt(variance + self.eps)
        if self.weight is not None:
            scale = self.weight * scale
        shift = -mean * scale if self.bias is None else self.bias - mean * scale
        return x * over_channels(scale, x) + over_channels(shift, x) * (size / typical)

    @torch.no_grad()
    def _update(self, mean: Tensor, variance: Tensor, typical: Tensor, values: int) -> None:
        """Move the running statistics towards those of a batch, by `momentum` or, if that is None, to their mean."""
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean), share)
        self.running_var.lerp_(variance.to(self.running_var) * values / (values - 1), share)
        self.running_size.lerp_(typical.to(self.running_size), share)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.weight is not None}"
