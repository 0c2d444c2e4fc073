"""`verify`: the numerical oracle. It refutes; it never proves."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from axiograd._calls import Leaves, read_leaves, select
from axiograd._notebook import shown_by
from axiograd._state import all_tensors, describe_model, require_shapes, unwrap
from axiograd._typing import Inputs, Target
from axiograd.errors import InputError, NotFiniteError, TargetError
from axiograd.homogeneity.probe import ModelProbe, in_double, products, tensors_of
from axiograd.homogeneity.refutation import ALPHAS as FAR, quiet_and_eager
from axiograd.homogeneity.tracing.surroundings import attributes_restored

#: Near 1, for an epsilon or a softmax looks homogeneous at scales far from the data's own; and far, for thresholds.
ALPHAS = (FAR[0], 0.5, 0.8, 1.25, 2.0, FAR[1])
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Verification:
    """How well F(αx) = αᵏF(x) and x·∇F = kF hold on given inputs.

    >>> import torch, axiograd.homogeneity as h
    >>> check = h.verify(torch.nn.Linear(3, 2), torch.ones(4, 3))
    >>> check.ok
    False
    """

    ok: bool
    #: Degree asked for.
    expected: float
    #: Degree measured: slope of log|F(αx)| over log α, F-weighted.
    degree: float
    #: max over samples and α of |F(αx) − αᵏF(x)| / |αᵏF|.
    scaling_error: float
    #: max over samples of |x·∇F − kF| / |F|.
    euler_error: float
    tolerance: float
    model: str
    dtype: str
    samples: int

    _repr_html_ = shown_by("result_html")

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        verdict = (
            f"found nothing against degree {self.expected:g} (which proves nothing; axiograd.certify does)"
            if self.ok
            else f"is not homogeneous of degree {self.expected:g}"
        )
        scales = ", ".join(f"{a:g}" for a in ALPHAS)
        return "\n".join(
            [
                f"{self.model}: {verdict}.",
                f"  measured degree  {self.degree:.6g}",
                f"  scaling error    {self.scaling_error:.3g}   max |F(αx) − αᵏF(x)| / |αᵏF| at α = {scales}",
                f"  Euler error      {self.euler_error:.3g}   max |x·∇F − kF| / |F|",
                f"  tolerance        {self.tolerance:g}, {self.dtype}, {self.samples} samples",
            ]
        )


def verify(
    model: Callable[..., Any],
    inputs: Inputs,
    *,
    degree: float = 1.0,
    target: Target = None,
    additional_forward_args: Any = None,
    baseline: Any = None,
    wrt: Any = None,
    tolerance: float = TOLERANCE,
) -> Verification:
    """Measure the degree, the scaling error and the Euler error on data, in float64, on a copy of the model.

    Random draws are repeated with the same seed at every scale.

    >>> import torch, axiograd.homogeneity as h
    >>> check = h.verify(lambda x: x.norm(dim=1) ** 2, torch.randn(5, 3), degree=2)
    >>> check.ok, round(check.degree, 6)
    (True, 2.0)
    """
    inner = unwrap(model)
    require_shapes(inner)
    arguments = read_leaves(inputs, additional_forward_args=additional_forward_args, wrt=wrt, baseline=baseline)
    _require_numbers(inner, arguments)
    with torch.inference_mode(mode=False), attributes_restored(inner), quiet_and_eager():
        twin = in_double(inner, arguments)
        # What does not run in float64 is run as it is, and left as it was.
        probe = ModelProbe(inner, arguments) if twin is None else ModelProbe(twin, arguments, torch.float64)
        return _verify(describe_model(inner), probe, degree, target, tolerance)


def _verify(name: str, probe: ModelProbe, degree: float, target: Target, tolerance: float) -> Verification:
    directions = probe.directions()

    def outputs(alpha: float) -> Tensor:
        with torch.no_grad():
            return _pick(probe.raw([alpha * d for d in directions]), target, probe)

    base = outputs(1.0)
    if not bool(base.isfinite().all()):
        raise NotFiniteError("the model's output on these inputs has NaN or Inf in it: nothing to measure.")
    size = _size(base)
    logs, scaling = [], 0.0
    for alpha in ALPHAS:
        scaled = outputs(alpha)
        scaling = max(scaling, _largest((scaled - alpha**degree * base).abs() / (alpha**degree * size)))
        logs.append((math.log(alpha), scaled))
    euler = _euler(probe, target, degree)
    limit = max(tolerance, 0.0 if probe.dtype == torch.float64 else 100 * torch.finfo(probe.dtype).eps)
    return Verification(
        ok=scaling <= limit and euler <= limit,
        expected=float(degree),
        degree=_measured(base, logs),
        scaling_error=scaling,
        euler_error=euler,
        tolerance=limit,
        model=name,
        dtype=str(probe.dtype).removeprefix("torch."),
        samples=base.shape[0],
    )


def _euler(probe: ModelProbe, target: Target, degree: float) -> float:
    """max |x·∇F − kF| / |F| over all outputs."""
    points = [d.clone().requires_grad_() for d in probe.directions()]
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        out = _pick(probe.raw(points), target, probe)
        along = _along(out, points) if out.requires_grad else torch.zeros_like(out)
    out = out.detach()
    return _largest((along - degree * out).abs() / _size(out))


def _pick(output: Any, target: Target, probe: ModelProbe) -> Tensor:
    """One floating-point matrix: sample × output."""
    if target is not None:
        first = next(leaf.value for leaf in probe.arguments.leaves if leaf.scales)
        batch = len(first) if first.dim() else 1
        return select(output, target, batch).reshape(batch, -1)
    chosen = tensors_of(output)
    if not chosen:
        raise TargetError("the model returns no floating-point tensor to measure.")
    rows = chosen[0].shape[0] if chosen[0].dim() else 1
    real = [torch.view_as_real(t) if t.is_complex() else t for t in chosen]
    return torch.cat([t.reshape(rows, -1) if t.numel() % rows == 0 else t.reshape(1, -1) for t in real], 1)


def _along(out: Tensor, points: list[Tensor]) -> Tensor:
    """J·x for every output: vᵀJ·x differentiated with respect to v, or row by row where that is not implemented."""
    v = torch.ones_like(out, requires_grad=True)
    grads = torch.autograd.grad(out, points, v, create_graph=True, allow_unused=True)
    inner = torch.stack(list(map(_dot, points, grads)))
    if not inner.requires_grad:
        return torch.zeros_like(out)
    try:
        moved: Tensor | None = torch.autograd.grad(inner.sum(), v, retain_graph=True, allow_unused=True)[0]
    except RuntimeError:  # some operators (hardsigmoid, cdist) have no second derivative
        rows = [torch.autograd.grad(y, points, retain_graph=True, allow_unused=True) for y in out.flatten()]
        return torch.stack([torch.stack(list(map(_dot, points, row))).sum() for row in rows]).detach().view_as(out)
    return torch.zeros_like(out) if moved is None else moved


def _size(outputs: Tensor) -> Tensor:
    """Size of each sample's output; samples with none are measured against the others."""
    flat = outputs.reshape(outputs.shape[0], -1)
    size = flat.abs().amax(1, keepdim=True) if flat.shape[1] else flat.new_ones(flat.shape[0], 1)
    return torch.where(size > 0, size, size.max().clamp_min(torch.finfo(size.dtype).tiny))


def _largest(values: Tensor) -> float:
    if values.numel() == 0:
        return 0.0
    worst = float(values.max())
    return math.inf if math.isnan(worst) else worst


def _measured(base: Tensor, logs: list[tuple[float, Tensor]]) -> float:
    """Slope of log|F(αx)| against log α through the origin, entries weighted by |F|."""
    weight = base.abs()
    top = bottom = 0.0
    for log, scaled in logs:
        usable = (weight > 0) & (scaled.abs() > 0)
        ratio = torch.where(usable, scaled.abs() / torch.where(usable, weight, 1.0), 1.0)
        top += float((weight * ratio.log() * usable).sum()) * log
        bottom += float((weight * usable).sum()) * log * log
    return top / bottom if bottom else math.nan


def _dot(point: Tensor, grad: Tensor | None) -> Tensor:
    if grad is None:
        return torch.zeros((), dtype=point.dtype.to_real(), device=point.device)
    return products(point.detach(), grad).sum()


def _require_numbers(model: Callable[..., Any], arguments: Leaves) -> None:
    if any(t.is_meta for t in all_tensors(model)):
        raise InputError("the model is on the meta device and has no numbers: load its weights first.")
    for leaf in arguments.leaves:
        if leaf.scales and not leaf.value.numel():
            raise InputError(f"input {leaf.name} has shape {tuple(leaf.value.shape)}: there is nothing to measure on.")
        if leaf.scales and not bool(leaf.value.isfinite().all()):
            raise NotFiniteError(f"input {leaf.name} has NaN or Inf in it.")
