"""The layers that a conversion puts in: BatchNorm without mean, and what a calibrated strip is made of."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from axiograd.homogeneity.conversion.rewrite import degree_of, track, without_rewrites
from axiograd.homogeneity.conversion.scale import infinite_at_zero, per_sample


class UncentredBatchNorm(nn.Module):
    """BatchNorm without mean and shift: y = γ·x/√(v + ε), v the running mean of x², updated after it was used.

    It divides by a constant in train mode too, so that it is linear there as well; `weight` and `running_var` keep
    their names, and `running_var` becomes the second raw moment, which for a trained BatchNorm is variance plus mean².

    >>> norm = UncentredBatchNorm(2)
    >>> norm(torch.tensor([[2.0, 4.0]])).detach(), norm.running_var
    (tensor([[2.0000, 4.0000]]), tensor([1.3000, 2.5000]))
    """

    weight: Tensor | None
    running_var: Tensor
    num_batches_tracked: Tensor
    #: Calls during one calibration: a norm that is used twice is calibrated to the mean of both.
    calls: int = 0

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, *, affine: bool = True
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.register_parameter("weight", nn.Parameter(torch.ones(num_features)) if affine else None)
        self.register_buffer("running_var", torch.ones(num_features))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    @torch.no_grad()
    def calibrate(self, x: Tensor) -> None:
        """Take the second moment of example inputs for the running one."""
        with without_rewrites():
            moment = _second_moment(x)
            known = torch.where(moment > 0, moment, self.running_var)
            self.running_var.lerp_(known.to(self.running_var), 1.0 / (self.calls + 1))
        self.calls += 1

    def forward(self, x: Tensor) -> Tensor:
        with without_rewrites():
            scale = torch.rsqrt(self.running_var + self.eps)
            if self.weight is not None:
                scale = self.weight * scale
            y = x * scale.to(x.dtype).view([1, -1] + [1] * (x.dim() - 2))
            if self.training:
                self._update(x)
        track(y, degree_of(x, default=1.0))
        return y

    @torch.no_grad()
    def _update(self, x: Tensor) -> None:
        self.num_batches_tracked.add_(1)
        moment = _second_moment(x).to(self.running_var)
        if self.momentum is None:
            self.running_var.add_((moment - self.running_var) / self.num_batches_tracked)
        else:
            self.running_var.lerp_(moment, self.momentum)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.weight is not None}"


def _second_moment(x: Tensor) -> Tensor:
    wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    return wide.square().mean([d for d in range(x.dim()) if d != 1])


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
        product: str,
        options: tuple[Any, ...],
        weight: Tensor,
        bias: Tensor | None,
        blocks: tuple[int, ...],
        title: str = "",
    ) -> None:
        super().__init__()
        #: "linear", "conv2d", "conv_transpose2d" and so on, and what follows weight and bias in its call;
        #: "scale" for a BatchNorm that follows no convolution, which is a product per channel.
        self.product, self.options = product, options
        #: How many means of h, means of W h and extremes of h the bias is read off.
        self.blocks = blocks
        #: Where the channels of h and of y are.
        self.channels = -1 if product == "linear" else 1
        #: Path of the layer in the original.
        self.title = title
        self.weight = nn.Parameter(weight.clone())
        self.register_parameter("bias", None if bias is None else nn.Parameter(bias.clone()))
        self.register_parameter("reader", None if bias is None else nn.Parameter(weight.new_zeros(sum(blocks))))

    def linear_part(self, h: Tensor) -> Tensor:
        if self.product == "scale":
            return h * self._over_channels(self.weight, h)
        made: Tensor = getattr(F, self.product)(h, self.weight, None, *self.options)
        return made

    def with_bias(self, y: Tensor, one: Tensor) -> Tensor:
        """y + b·c."""
        return y if self.bias is None else y + self._over_channels(self.bias, y) * per_sample(one, y)

    def features(self, h: Tensor, y: Tensor) -> Tensor:
        at = self.channels
        return torch.cat([pooled(h, at), pooled(y, at), extremes(h, at)], 1)

    def forward(self, h: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        y = self.linear_part(h)
        one = y.new_zeros(y.shape[0]) if before is None else before
        if self.reader is not None:
            one = one + self.features(h, y) @ self.reader
        return self.with_bias(y, one), one

    def _over_channels(self, values: Tensor, y: Tensor) -> Tensor:
        """One value per channel in a shape that broadcasts to y."""
        return values if self.channels == -1 else values.view([-1] + [1] * (y.dim() - 2))

    # What a fit of the weights sees of it.

    @property
    def groups(self) -> int:
        return 1 if self.product == "linear" else int(self.options[3])

    def has_patches(self) -> bool:
        """Whether this is a linear layer, or a convolution whose patches `F.unfold` knows."""
        return self.product == "linear" or (self.product == "conv2d" and not isinstance(self.options[1], str))

    def at_places(self, y: Tensor, places: Tensor) -> Tensor:
        """Values at places of each image that are given by number, [images · places, channels]."""
        flat = y.movedim(self.channels, -1).flatten(1, -2) if y.dim() > 2 else y[:, None]  # noqa: PLR2004
        return flat.gather(1, places[..., None].expand(-1, -1, flat.shape[-1])).flatten(0, 1)

    def patches(self, h: Tensor, places: Tensor) -> Tensor:
        """What the weights see at places of the output, [images · places, groups · weights of an output]."""
        if self.product == "linear":
            return self.at_places(h, places)
        stride, padding, dilation, _ = self.options
        kernel = tuple(self.weight.shape[2:])
        # Image by image: all patches of a batch would take many times its memory.
        unfolded = (F.unfold(x, kernel, dilation, padding, stride)[0] for x in h.split(1))
        return torch.cat([every[:, at].T for every, at in zip(unfolded, places, strict=True)])

    def extra_repr(self) -> str:
        return f"{self.product}, {tuple(self.weight.shape)}, bias={self.bias is not None}"


class CappedReLU(nn.Module):
    """min(max(y, 0), cap · c): ReLU6 whose cap goes with the scale."""

    def __init__(self, cap: float) -> None:
        super().__init__()
        self.cap = cap

    def forward(self, y: Tensor, one: Tensor) -> Tensor:
        return torch.minimum(y.relu(), self.cap * per_sample(one.relu(), y))


class ActivationAtScale(nn.Module):
    """c·φ(y/c) for an activation φ, which is φ where c = 1 and has degree 1; a gate is φ(y/c), of degree 0.

    φ is an operator of PyTorch by name. Where c is zero or below, an activation is 0, and a gate φ(0).

    >>> silu = ActivationAtScale("silu")
    >>> y, c = torch.tensor([[2.0]]), torch.ones(1)
    >>> bool(silu(y, c) == nn.functional.silu(y)), bool(silu(3 * y, 3 * c) == 3 * silu(y, c))
    (True, True)
    """

    def __init__(
        self, name: str, options: tuple[Any, ...] = (), named: dict[str, Any] | None = None, *, gate: bool = False
    ) -> None:
        super().__init__()
        self.name, self.options, self.named, self.gate = name, options, named or {}, gate

    def forward(self, y: Tensor, one: Tensor) -> Tensor:
        c = per_sample(one.relu(), y)
        made: Tensor = getattr(torch.ops.aten, self.name)(y / infinite_at_zero(c), *self.options, **self.named)
        return made if self.gate else c * made

    def extra_repr(self) -> str:
        return f"{self.name}, gate={self.gate}"
