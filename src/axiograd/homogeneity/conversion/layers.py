"""Layers at the data's scale: norms without mean, shift or loss of scale, attention, recurrent layers."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from axiograd.homogeneity.conversion.counterparts import Counterpart, Scaled, blend, fenced
from axiograd.homogeneity.conversion.scale import sample_rms, unscaled, whole_rms


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

    @fenced
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
        y: Tensor = rho * super().forward(unscaled(x, rho))
        if self.training:
            with torch.no_grad():
                self.radius.lerp_(whole_rms(x, tokens=self.tokens).to(self.radius), self.pace)
        return y

    @fenced
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

    @fenced
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        of_query, of_key = self.current_radius()
        unit_query, unit_key = self._unit(query, of_query), self._unit(key, of_key)
        return nn.MultiheadAttention.forward(self, unit_query, unit_key, value, *args, **kwargs)

    def _unit(self, x: Tensor, radius: Tensor) -> Tensor:
        return unscaled(x, (sample_rms(x, _batch_dim(self, x)) / radius).to(x.dtype))


class ScaleKeepingRecurrent(Scaled):
    """R(x, h) → ρ·R(x/ρ, h/ρ), ρ = RMS(x)/r over the sequence: R itself at the data's scale, biases included."""

    batch_first: bool

    def calibrate(self, x: Tensor, *_args: Any, **_kwargs: Any) -> None:
        blend(self.radius, whole_rms(x, _batch_dim(self, x)), self.calls)
        self.calls += 1

    @fenced
    def forward(self, x: Tensor, hx: Any = None) -> Any:
        batched = x.dim() == 3  # noqa: PLR2004
        rho = self.ratio(x, _batch_dim(self, x))
        per_state = rho.reshape([1, -1, 1] if batched else [1, 1])
        unit_state = None if hx is None else tree_map(lambda h: unscaled(h, per_state), hx)
        output, state = super().forward(unscaled(x, rho), unit_state)
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
