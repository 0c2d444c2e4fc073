"""What homogeneous counterparts share: a radius calibrated on example inputs, a fence around their inner work."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import torch
from torch import Tensor, nn

from axiograd.homogeneity.conversion.live import suspended, track
from axiograd.homogeneity.conversion.scale import sample_rms, unscaled, whole_rms

P = ParamSpec("P")
T = TypeVar("T")
Self_ = TypeVar("Self_", bound=nn.Module)


def fenced(forward: Callable[Concatenate[Self_, P], T]) -> Callable[Concatenate[Self_, P], T]:
    """Keep a patched owner from rewriting inside a counterpart, which has the degree `self.degree` already."""

    @functools.wraps(forward)
    def inner(self: Self_, *args: P.args, **kwargs: P.kwargs) -> T:
        with suspended():
            output = forward(self, *args, **kwargs)
        track(output, cast("float", getattr(self, "degree", 1.0)))
        return output

    return cast("Callable[Concatenate[Self_, P], T]", inner)


class Counterpart(nn.Module):
    """A homogeneous stand-in for a module; `calibrate` sees the same arguments as `forward`, before it."""

    degree: float = 1.0
    calls: int = 0  # during one calibration: a module that is used twice is calibrated to the mean of both

    def calibrate(self, *args: Any, **kwargs: Any) -> None:
        """Fit the constants of this counterpart to one call on example inputs."""


class Scaled(Counterpart):
    """A counterpart that works at the data's scale: it sees x/ρ with ρ = RMS(x)/r, r being `radius`."""

    radius: Tensor

    def start(self, reference: Tensor | None) -> None:
        like = torch.empty(0) if reference is None else reference
        dtype = torch.promote_types(like.dtype, torch.float32)
        self.register_buffer("radius", torch.ones((), dtype=dtype, device=like.device))

    def calibrate(self, x: Tensor, *_args: Any, **_kwargs: Any) -> None:
        blend(self.radius, whole_rms(x), self.calls)
        self.calls += 1

    def current_radius(self) -> Tensor:
        """r for one forward pass; the backward pass needs it after train mode, or DDP's broadcast, moved the buffer."""
        return self.radius.clone() if self.training else self.radius

    def ratio(self, x: Tensor, batch_dim: int | None = 0) -> Tensor:
        return (sample_rms(x, batch_dim) / self.current_radius()).to(x.dtype)

    def at_data_scale(self, x: Tensor, batch_dim: int | None = 0) -> Tensor:
        return unscaled(x, self.ratio(x, batch_dim))


@torch.no_grad()
def blend(buffer: Tensor, value: Tensor, calls: int) -> None:
    """Move a calibrated constant towards the mean over calls; silence (all zeros) teaches nothing."""
    known = torch.where(value > 0, value, torch.ones_like(value)).to(buffer)
    buffer.lerp_(known, 1.0 / (calls + 1))
