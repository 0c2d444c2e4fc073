"""Layers at the data's scale: norms, attention, recurrent layers, and those of a calibrated strip."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from axiograd.homogeneity.conversion.counterparts import Counterpart, Scaled, blend, without_rewrites
from axiograd.homogeneity.conversion.scale import infinite_at_zero, per_sample, safe_divide, sample_rms, whole_rms


class UncentredBatchNorm(Counterpart):
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

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, *, affine: bool = True
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.register_parameter("weight", nn.Parameter(torch.ones(num_features)) if affine else None)
        self.register_buffer("running_var", torch.ones(num_features))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    @torch.no_grad()
    def calibrate(self, x: Tensor, *_args: Any, **_kwargs: Any) -> None:
        moment = _second_moment(x)
        known = torch.where(moment > 0, moment, self.running_var)
        self.running_var.lerp_(known.to(self.running_var), 1.0 / (self.calls + 1))
        self.calls += 1

    @without_rewrites
    def forward(self, x: Tensor) -> Tensor:
        scale = torch.rsqrt(self.running_var + self.eps)
        if self.weight is not None:
            scale = self.weight * scale
        y = x * scale.to(x.dtype).view([1, -1] + [1] * (x.dim() - 2))
        if self.training:
            self._update(x)
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


class ScaleKeeping(Scaled):
    """N(x) → ρ·N(x/ρ) without shift, ρ = RMS(x)/r over the sample: N itself at the data's scale, ε included, degree 1.

    r is the running RMS of what the layer sees: in train mode it is updated after it was used.
    """

    pace = 0.1  # InstanceNorm has a momentum of its own

    def _rescaled(self, x: Tensor) -> Tensor:
        rho = self.ratio(x)
        y: Tensor = rho * super().forward(safe_divide(x, rho))
        if self.training:
            with torch.no_grad():
                self.radius.lerp_(whole_rms(x, tokens=self.tokens).to(self.radius), self.pace)
        return y

    @without_rewrites
    def forward(self, x: Tensor) -> Tensor:
        return self._rescaled(x)


class ScaleKeepingChannels(ScaleKeeping):
    """A norm of [batch, channels, …], where tokens come last."""

    tokens = (-1,)


class ScaleKeepingLayerNorm(ScaleKeeping, nn.LayerNorm):
    """LayerNorm that returns the scale it took out, and has no shift."""


class ScaleKeepingRMSNorm(ScaleKeeping, nn.RMSNorm):
    """RMSNorm that returns the scale it took out."""


class ScaleKeepingGroupNorm(ScaleKeepingChannels, nn.GroupNorm):
    """GroupNorm that returns the scale it took out, and has no shift."""


class ScaleKeepingLocalResponseNorm(ScaleKeepingChannels, nn.LocalResponseNorm):
    """Local response normalisation at the data's scale."""


class ScaleKeepingInstanceNorm1d(ScaleKeepingChannels, nn.InstanceNorm1d):
    """InstanceNorm1d that returns the scale it took out, and has no shift."""


class ScaleKeepingInstanceNorm2d(ScaleKeepingChannels, nn.InstanceNorm2d):
    """InstanceNorm2d that returns the scale it took out, and has no shift."""


class ScaleKeepingInstanceNorm3d(ScaleKeepingChannels, nn.InstanceNorm3d):
    """InstanceNorm3d that returns the scale it took out, and has no shift."""


BATCH_NORMS: tuple[type[nn.Module], ...] = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

SCALE_KEEPING: dict[type[nn.Module], type[ScaleKeeping]] = {
    nn.LayerNorm: ScaleKeepingLayerNorm,
    nn.RMSNorm: ScaleKeepingRMSNorm,
    nn.GroupNorm: ScaleKeepingGroupNorm,
    nn.LocalResponseNorm: ScaleKeepingLocalResponseNorm,
    nn.InstanceNorm1d: ScaleKeepingInstanceNorm1d,
    nn.InstanceNorm2d: ScaleKeepingInstanceNorm2d,
    nn.InstanceNorm3d: ScaleKeepingInstanceNorm3d,
}


def _batch_dim(layer: Any, x: Tensor) -> int | None:
    return None if x.dim() < 3 else 0 if layer.batch_first else 1  # noqa: PLR2004


class NormalisedAttention(Scaled, nn.MultiheadAttention):
    """softmax(QKᵀ/√d)·V with Q and K computed from x/ρ, ρ = RMS(x)/r over the sample, and V from x; no biases.

    At the data's scale the logits are the original's; token norms within a sample keep their meaning.
    """

    def start(self, reference: Tensor | None) -> None:
        super().start(reference)
        self.register_buffer("radius", self.radius.repeat(2))

    def calibrate(self, query: Tensor, key: Tensor, *_args: Any, **_kwargs: Any) -> None:  # type: ignore[override]
        # the same arguments as forward
        found = [whole_rms(x, _batch_dim(self, x)) for x in (query, key)]
        blend(self.radius, torch.stack(found), self.calls)
        self.calls += 1

    @without_rewrites
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        of_query, of_key = self.current_radius()
        unit_query, unit_key = self._unit(query, of_query), self._unit(key, of_key)
        return nn.MultiheadAttention.forward(self, unit_query, unit_key, value, *args, **kwargs)

    def _unit(self, x: Tensor, radius: Tensor) -> Tensor:
        return safe_divide(x, (sample_rms(x, _batch_dim(self, x)) / radius).to(x.dtype))


class ScaleKeepingRecurrent(Scaled):
    """R(x, h) → ρ·R(x/ρ, h/ρ), ρ = RMS(x)/r over the sequence: R itself at the data's scale, biases included."""

    batch_first: bool

    def calibrate(self, x: Tensor, *_args: Any, **_kwargs: Any) -> None:
        blend(self.radius, whole_rms(x, _batch_dim(self, x)), self.calls)
        self.calls += 1

    @without_rewrites
    def forward(self, x: Tensor, hx: Any = None) -> Any:
        batched = x.dim() == 3  # noqa: PLR2004
        rho = self.ratio(x, _batch_dim(self, x))
        per_state = rho.reshape([1, -1, 1] if batched else [1, 1])
        unit_state = None if hx is None else tree_map(lambda h: safe_divide(h, per_state), hx)
        output, state = super().forward(safe_divide(x, rho), unit_state)
        return rho * output, tree_map(lambda h: per_state * h, state)


class ScaleKeepingLSTM(ScaleKeepingRecurrent, nn.LSTM):  # type: ignore[misc]  # torch overloads forward for packed sequences
    """LSTM at the data's scale."""


class ScaleKeepingGRU(ScaleKeepingRecurrent, nn.GRU):  # type: ignore[misc]  # torch overloads forward for packed sequences
    """GRU at the data's scale."""


class ScaleKeepingRNN(ScaleKeepingRecurrent, nn.RNN):  # type: ignore[misc]  # torch overloads forward for packed sequences
    """RNN at the data's scale."""


RECURRENT: dict[type[nn.Module], type[ScaleKeepingRecurrent]] = {
    nn.LSTM: ScaleKeepingLSTM,
    nn.GRU: ScaleKeepingGRU,
    nn.RNN: ScaleKeepingRNN,
}


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
        self, product: str, options: tuple[Any, ...], weight: Tensor, bias: Tensor | None, blocks: tuple[int, ...]
    ) -> None:
        super().__init__()
        #: "linear", "conv2d", "conv_transpose2d" and so on, and what follows weight and bias in its call;
        #: "scale" for a BatchNorm that follows no convolution, which is a product per channel.
        self.product, self.options = product, options
        #: How many means of h, means of W h and extremes of h the bias is read off.
        self.blocks = blocks
        #: Where the channels of h and of y are.
        self.channels = -1 if product == "linear" else 1
        self.weight = nn.Parameter(weight.clone())
        self.register_parameter("bias", None if bias is None else nn.Parameter(bias.clone()))
        self.register_parameter("reader", None if bias is None else nn.Parameter(weight.new_zeros(sum(blocks))))

    def linear_part(self, h: Tensor) -> Tensor:
        if self.product == "scale":
            return h * self.over_channels(self.weight, h)
        made: Tensor = getattr(F, self.product)(h, self.weight, None, *self.options)
        return made

    def over_channels(self, values: Tensor, y: Tensor) -> Tensor:
        """One value per channel in a shape that broadcasts to y."""
        shape = [1] * y.dim()
        shape[self.channels] = -1
        return values.view(shape)

    def features(self, h: Tensor, y: Tensor) -> Tensor:
        at = self.channels
        return torch.cat([pooled(h, at), pooled(y, at), extremes(h, at)], 1)

    def forward(self, h: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        y = self.linear_part(h)
        one = y.new_zeros(len(y)) if before is None else before
        if self.bias is None or self.reader is None:
            return y, one
        one = one + self.features(h, y) @ self.reader
        return y + self.over_channels(self.bias, y) * per_sample(one, y), one

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
