"""The layers of a calibrated strip: y = W h + b·c(h), where c(h) reads the constant 1 off the input."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

#: Dimensions of an image batch before its pixels: batch and channels.
_LEADING = 2


def pooled(h: Tensor, channels: int) -> Tensor:
    """Means of the positive and of the negative parts of each channel over everything else, [batch, 2 · channels].

    >>> pooled(torch.tensor([[[3.0, -1.0]]]), channels=1)
    tensor([[1.5000, 0.5000]])
    """
    dims = [d for d in range(1, h.dim()) if d != channels % h.dim()]
    parts = [h.clamp_min(0), (-h).clamp_min(0)]
    return torch.cat([part.mean(dims) if dims else part for part in parts], 1)


class AffineOfDegreeOne(nn.Module):
    """y = W h + b·c(h) with c(h) = v · pooled(h, W h): an affine layer whose bias is read off its input, of degree 1.

    c is 1 at the data's scale, up to the error that the conversion reports; it is piecewise linear. Returns y and c.
    """

    weight: Tensor
    bias: Tensor | None
    reader: Tensor | None

    def __init__(
        self,
        product: Callable[..., Tensor],
        options: tuple[Any, ...],
        weight: Tensor,
        bias: Tensor | None,
        features: int,
    ) -> None:
        super().__init__()
        #: y = product(h, W, None, *options); an operator of PyTorch.
        self.product, self.options = product, options
        #: Where the channels of h and of y are.
        self.channels = -1 if product is torch.ops.aten.linear.default else 1
        self.weight = nn.Parameter(weight.clone())
        self.register_parameter("bias", None if bias is None else nn.Parameter(bias.clone()))
        self.register_parameter("reader", None if bias is None else nn.Parameter(weight.new_zeros(features)))

    def linear_part(self, h: Tensor) -> Tensor:
        return self.product(h, self.weight, None, *self.options)

    def features(self, h: Tensor, y: Tensor) -> Tensor:
        return torch.cat([pooled(h, self.channels), pooled(y, self.channels)], 1)

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        y = self.linear_part(h)
        if self.bias is None or self.reader is None:
            return y, y.new_zeros(len(y))
        one = self.features(h, y) @ self.reader
        shape = [1] * y.dim()
        shape[self.channels] = -1
        return y + self.bias.view(shape) * one.view([-1] + [1] * (y.dim() - 1)), one

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"product": str(self.product)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        name = str(state["product"]).split(".")
        self.product = scale_channels if name[0] != "aten" else getattr(getattr(torch.ops.aten, name[1]), name[2])

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, bias={self.bias is not None}, {self.product!s}"


def scale_channels(h: Tensor, weight: Tensor, _bias: None = None) -> Tensor:
    """A norm that follows no convolution, as the product that it is."""
    return h * weight.view([1, -1] + [1] * (h.dim() - _LEADING))


class CappedReLU(nn.Module):
    """min(max(y, 0), cap · c): ReLU6 whose cap goes with the scale."""

    def __init__(self, cap: float) -> None:
        super().__init__()
        self.cap = cap

    def forward(self, y: Tensor, one: Tensor) -> Tensor:
        return torch.minimum(y.relu(), self.cap * one.relu().view([-1] + [1] * (y.dim() - 1)))
