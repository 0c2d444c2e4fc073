"""The layers of a calibrated strip: y = W h + b·c(h), where c(h) reads the constant 1 off the input."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from axiograd.homogeneity.conversion.calibrated.functions import function_of
from axiograd.homogeneity.conversion.scale import infinite_at_zero

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


def extremes(h: Tensor, channels: int) -> Tensor:
    """The largest positive and negative values of each channel, [batch, 2 · channels]; nothing where it has one value.

    A photo's range hardly varies from one to the next, while its mean contrast does by a fifth.

    >>> extremes(torch.tensor([[[3.0, -1.0]]]), channels=1)
    tensor([[3., 1.]])
    """
    dims = [d for d in range(1, h.dim()) if d != channels % h.dim()]
    if not dims:
        return h[:, :0]
    return torch.cat([h.amax(dims).relu(), (-h).amax(dims).relu()], 1)


def feature_blocks(read: torch.Size, made: torch.Size, channels: int) -> tuple[int, int, int]:
    """How many means of h, means of W h and extremes of h a bias is read off, for h and W h of these shapes."""
    return 2 * read[channels], 2 * made[channels], 2 * read[channels] if len(read) > _LEADING else 0


class AffineOfDegreeOne(nn.Module):
    """y = W h + b·c, c = c' + v · (pooled(h, W h), extremes(h)): its bias is read off its input, and it has degree 1.

    c' is what the layer before has read, 0 for the first. c is 1 at the data's scale, up to the error that the
    conversion reports; it is piecewise linear. Returns y and c.
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
        blocks: tuple[int, ...],
    ) -> None:
        super().__init__()
        #: y = product(h, W, None, *options); an operator of PyTorch.
        self.product, self.options = product, options
        #: Features of each kind that the bias is read off.
        self.blocks = blocks
        #: Where the channels of h and of y are.
        self.channels = -1 if product is torch.ops.aten.linear.default else 1
        self.weight = nn.Parameter(weight.clone())
        self.register_parameter("bias", None if bias is None else nn.Parameter(bias.clone()))
        self.register_parameter("reader", None if bias is None else nn.Parameter(weight.new_zeros(sum(blocks))))

    def linear_part(self, h: Tensor) -> Tensor:
        made: Tensor = function_of(self.product)(h, self.weight, None, *self.options)
        return made

    def features(self, h: Tensor, y: Tensor) -> Tensor:
        at = self.channels
        return torch.cat([pooled(h, at), pooled(y, at), extremes(h, at)], 1)

    def forward(self, h: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        y = self.linear_part(h)
        if self.bias is None or self.reader is None:
            return y, y.new_zeros(len(y)) if before is None else before
        one = self.features(h, y) @ self.reader
        if before is not None:
            one = one + before
        return y + self.spread(one, y), one

    def spread(self, one: Tensor, y: Tensor) -> Tensor:
        """b·c in the shape of y, or one that broadcasts to it."""
        shape = [1] * y.dim()
        shape[self.channels] = -1
        bias: Tensor = self.bias  # type: ignore[assignment]  # it is asked for where there is one
        return bias.view(shape) * one.view([-1] + [1] * (y.dim() - 1))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"product": str(self.product)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        name = str(state["product"])
        self.product = operator(name) if name.startswith("aten.") else scale_channels

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, bias={self.bias is not None}, {self.product!s}"


def operator(name: str) -> Any:
    """An operator of PyTorch by its name, "aten.relu.default": they cannot be pickled."""
    _, packet, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


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


class ActivationAtScale(nn.Module):
    """c·φ(y/c) for an activation φ, which is φ where c = 1 and has degree 1; a gate is φ(y/c), of degree 0.

    Where c is zero or below, an activation is 0, and a gate φ(0).

    >>> silu = ActivationAtScale(torch.ops.aten.silu.default)
    >>> y, c = torch.tensor([[2.0]]), torch.ones(1)
    >>> bool(silu(y, c) == nn.functional.silu(y)), bool(silu(3 * y, 3 * c) == 3 * silu(y, c))
    (True, True)
    """

    def __init__(
        self, function: Any, options: tuple[Any, ...] = (), named: dict[str, Any] | None = None, *, gate: bool = False
    ) -> None:
        super().__init__()
        self.function, self.options, self.named, self.gate = function, options, named or {}, gate

    def forward(self, y: Tensor, one: Tensor) -> Tensor:
        c = one.relu().view([-1] + [1] * (y.dim() - 1))
        made: Tensor = self.function(y / infinite_at_zero(c), *self.options, **self.named)
        return made if self.gate else c * made

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"function": str(self.function)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.function = operator(str(state["function"]))

    def extra_repr(self) -> str:
        return f"{self.function!s}, gate={self.gate}"
