"""Homogeneous stand-ins for modules: what they share, activations of two slopes, and gates of degree 0."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import torch
from torch import Tensor, nn

from axiograd.homogeneity.conversion.degrees import suspended, track
from axiograd.homogeneity.conversion.scale import safe_divide, sample_rms, whole_rms

P = ParamSpec("P")
T = TypeVar("T")
Self_ = TypeVar("Self_", bound=nn.Module)


def without_rewrites(forward: Callable[Concatenate[Self_, P], T]) -> Callable[Concatenate[Self_, P], T]:
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
    #: Dimensions of x along which padding may lie, if not the one beside the batch.
    tokens: Sequence[int] | None = None

    def start(self, reference: Tensor | None) -> None:
        like = torch.empty(0) if reference is None else reference
        dtype = torch.promote_types(like.dtype, torch.float32)
        self.register_buffer("radius", torch.ones((), dtype=dtype, device=like.device))

    def calibrate(self, x: Tensor, *_args: Any, **_kwargs: Any) -> None:
        blend(self.radius, whole_rms(x, tokens=self.tokens), self.calls)
        self.calls += 1

    def current_radius(self) -> Tensor:
        """r for one forward pass; the backward pass needs it after train mode, or DDP's broadcast, moved the buffer."""
        return self.radius.clone() if self.training else self.radius

    def ratio(self, x: Tensor, batch_dim: int | None = 0) -> Tensor:
        return (sample_rms(x, batch_dim, self.tokens) / self.current_radius()).to(x.dtype)


@torch.no_grad()
def blend(buffer: Tensor, value: Tensor, calls: int) -> None:
    """Move a calibrated constant towards the mean over calls; silence (all zeros) teaches nothing."""
    known = torch.where(value > 0, value, torch.ones_like(value)).to(buffer)
    buffer.lerp_(known, 1.0 / (calls + 1))


ACTIVATIONS: tuple[type[nn.Module], ...] = (
    nn.CELU,
    nn.ELU,
    nn.GELU,
    nn.Hardshrink,
    nn.Hardswish,
    nn.Hardtanh,
    nn.LogSigmoid,
    nn.Mish,
    nn.ReLU6,
    nn.SELU,
    nn.SiLU,
    nn.Softplus,
    nn.Softshrink,
    nn.Softsign,
    nn.Tanh,
    nn.Tanhshrink,
    nn.Threshold,
)


def two_slopes(x: Tensor, slopes: Tensor) -> Tensor:
    """φ(z) = a₁·z for z > 0 and a₂·z otherwise (Proposition 3.8).

    >>> two_slopes(torch.tensor([-2.0, 2.0]), torch.tensor([1.0, 0.5]))
    tensor([-1.,  2.])
    """
    return x * torch.where(x > 0, slopes[0], slopes[1]).to(x.dtype)


def fit_slopes(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Least squares on the values that the activation sees: aᵢ = Σ φ(z)·z / Σ z² over its side of zero.

    >>> fit_slopes(torch.nn.functional.relu6, torch.tensor([-1.0, 3.0, 12.0]))
    tensor([0.5294, 0.0000], dtype=torch.float64)
    """
    z = x.detach().double().flatten()
    y = function(z.clone())
    default = None
    slopes = []
    for side in (z > 0, z < 0):
        power = z[side].square().sum()
        if power > 0:
            slopes.append((y[side] * z[side]).sum() / power)
        else:
            default = default if default is not None else _normal_slopes(function)
            slopes.append(default[len(slopes)].to(z.device))
    return torch.stack(slopes)


@functools.cache
def _normal_values() -> Tensor:
    quantiles = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    values: Tensor = torch.special.ndtri(quantiles)
    return values


def _normal_slopes(function: Callable[[Tensor], Tensor]) -> Tensor:
    """Slopes for values of which nothing is known: fitted on the standard normal distribution."""
    return fit_slopes(function, _normal_values())


class TwoSlopes(Counterpart):
    """GELU, SiLU, ELU, ReLU6, tanh … → φ(z) = a₁·max(z, 0) + a₂·min(z, 0), slopes fitted at the data's scale.

    >>> activation = TwoSlopes(nn.ELU())
    >>> activation.calibrate(torch.linspace(-1, 1, 101))
    >>> activation.slopes
    tensor([1.0000, 0.7050])
    """

    slopes: Tensor

    def __init__(self, original: nn.Module, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.original = original
        self.training = original.training
        self.register_buffer("slopes", _normal_slopes(self._function).to(dtype))

    def _function(self, x: Tensor) -> Tensor:
        y: Tensor = self.original(x)
        return y

    @torch.no_grad()
    def calibrate(self, x: Tensor, *_args: Any, **_kwargs: Any) -> None:
        self.slopes.lerp_(fit_slopes(self._function, x).to(self.slopes), 1.0 / (self.calls + 1))
        self.calls += 1

    @without_rewrites
    def forward(self, x: Tensor) -> Tensor:
        return two_slopes(x, self.slopes)


GATES: tuple[type[nn.Module], ...] = (
    nn.Hardsigmoid,
    nn.LogSoftmax,
    nn.Sigmoid,
    nn.Softmax,
    nn.Softmax2d,
    nn.Softmin,
)


class NormalisedGate(Scaled):
    """σ(s) → σ(s/ρ), ρ = RMS(s)/r: degree 0, and σ(s) itself at the data's scale; ρ·σ(s/ρ), degree 1, where no gate.

    >>> gate = NormalisedGate(nn.Sigmoid())
    >>> s = torch.tensor([[1.0, -1.0]])
    >>> gate(s), gate(10 * s)
    (tensor([[0.7311, 0.2689]]), tensor([[0.7311, 0.2689]]))
    """

    def __init__(self, gate: nn.Module, *, degree: float = 0.0, reference: Tensor | None = None) -> None:
        super().__init__()
        self.gate = gate
        self.degree = degree
        self.training = gate.training
        self.start(reference)

    @without_rewrites
    def forward(self, s: Tensor) -> Tensor:
        rho = self.ratio(s)
        unit = safe_divide(s, rho)
        # torch has no second derivative for hardsigmoid, which a prior on attributions needs
        value: Tensor = (unit / 6 + 0.5).clamp(0, 1) if isinstance(self.gate, nn.Hardsigmoid) else self.gate(unit)
        return value if self.degree == 0 else rho * value


class NormalisedGLU(Scaled):
    """GLU: a·σ(b) → a·σ(b/ρ), ρ = RMS(b)/r.

    >>> NormalisedGLU(nn.GLU())(torch.tensor([[3.0, 1.0]]))
    tensor([[2.1932]])
    """

    def __init__(self, original: nn.GLU, reference: Tensor | None = None) -> None:
        super().__init__()
        self.dim = original.dim
        self.training = original.training
        self.start(reference)

    def calibrate(self, x: Tensor, *_args: Any, **_kwargs: Any) -> None:
        super().calibrate(x.chunk(2, self.dim)[1])

    @without_rewrites
    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, self.dim)
        return a * torch.sigmoid(safe_divide(b, self.ratio(b)))
