"""The numerical oracle: it refutes, it never proves.

`verify` measures F(αx) = αᵏF(x) and x·∇F = kF on the user's data. `contradiction` checks both on the running
model against its proof, and autograd's slope along a line against a difference of outputs.
"""

from __future__ import annotations

import copy
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from axiograd._calls import Leaves, read_leaves, scalable, select
from axiograd._notebook import shown_by
from axiograd._state import (
    all_tensors,
    attributes_restored,
    describe_model,
    preserved_buffers,
    require_shapes,
    running_eagerly,
    unwrap,
    why_it_fails,
    with_buffers,
)
from axiograd._typing import Inputs, Target
from axiograd.errors import InputError, NotFiniteError, TargetError

#: Near 1, for an epsilon or a softmax looks homogeneous at scales far from the data's own; and far, for thresholds:
#: even powers of 2, by which sums, products, roots and comparisons scale exactly.
ALPHAS = (2.0**-6, 0.5, 0.8, 1.25, 2.0, 2.0**6)
TOLERANCE = 1e-6
#: Where epsilons count, they are left behind first.
BEYOND_EPSILONS = 2.0**12
#: A gradient that differs from the slope by more, relative to what a line like it has, is another one.
_SLOPE = 0.02
#: Where it does over the first step, and agrees over one of these, the function is steep and the gradient right.
_NEARER_STEPS = (1e-9, 1e-12)
#: What autograd says of a model whose gradient cannot be had.
_NO_GRADIENT = re.compile("derivative for .* not implemented|modified by an inplace operation|Inference tensors cannot")


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
            f"found no contradiction to degree {self.expected:g} (which proves nothing; axiograd.certify does)"
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
    model = unwrap(model)
    require_shapes(model)
    arguments = read_leaves(inputs, additional_forward_args=additional_forward_args, wrt=wrt, baseline=baseline)
    _require_numbers(model, arguments)
    with torch.inference_mode(mode=False), attributes_restored(model), quiet_and_eager():
        probe = Probe(model, arguments).in_double()
        x = probe.directions()
        try:
            base = probe.matrix(x, target)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise why_it_fails(probe.model, x, error) from error
        if not bool(base.isfinite().all()):
            raise NotFiniteError("the model's output on these inputs has NaN or Inf in it: nothing to measure.")
        scaled = {alpha: probe.matrix([alpha * d for d in x], target) for alpha in ALPHAS}
        euler = (probe.along(x, target) - degree * base).abs() / _size(base)
    scaling = max(scaling_error(base, after, alpha**degree) for alpha, after in scaled.items())
    limit = max(tolerance, 0.0 if probe.dtype == torch.float64 else 100 * torch.finfo(probe.dtype).eps)
    return Verification(
        ok=scaling <= limit and _largest(euler) <= limit,
        expected=float(degree),
        degree=_measured(base, scaled),
        scaling_error=scaling,
        euler_error=_largest(euler),
        tolerance=limit,
        model=describe_model(model),
        dtype=str(probe.dtype).removeprefix("torch."),
        samples=base.shape[0],
    )


def _require_numbers(model: Callable[..., Any], arguments: Leaves) -> None:
    if any(t.is_meta for t in all_tensors(model)):
        raise InputError("the model is on the meta device and has no numbers: load its weights first.")
    for leaf in arguments.leaves:
        if leaf.scales and not leaf.value.numel():
            raise InputError(f"input {leaf.name} has shape {tuple(leaf.value.shape)}: there is nothing to measure on.")
        if leaf.scales and not bool(leaf.value.isfinite().all()):
            raise NotFiniteError(f"input {leaf.name} has NaN or Inf in it.")


def scaling_error(base: Tensor, scaled: Tensor, factor: float, floor: float = 0.0) -> float:
    """max |F(αx) − αᵏF(x)| / |αᵏF|, |F| that of the sample; `floor` is what rounding may leave of |F|."""
    return _largest((scaled - factor * base).abs() / (factor * (_size(base) + floor)))


def _size(outputs: Tensor) -> Tensor:
    """Size of each sample's output; samples with none are measured against the others."""
    size = outputs.abs().amax(1, keepdim=True) if outputs.shape[1] else outputs.new_ones(outputs.shape[0], 1)
    return torch.where(size > 0, size, size.max().clamp_min(torch.finfo(size.dtype).tiny))


def _largest(values: Tensor) -> float:
    worst = float(values.max()) if values.numel() else 0.0
    return math.inf if math.isnan(worst) else worst


def _measured(base: Tensor, scaled: dict[float, Tensor]) -> float:
    """Slope of log|F(αx)| against log α through the origin, entries weighted by |F|."""
    weight = base.abs()
    top = bottom = 0.0
    for alpha, after in scaled.items():
        usable = (weight > 0) & (after.abs() > 0)
        ratio = torch.where(usable, after.abs() / torch.where(usable, weight, 1.0), 1.0)
        top += float((weight * ratio.log() * usable).sum()) * math.log(alpha)
        bottom += float((weight * usable).sum()) * math.log(alpha) ** 2
    return top / bottom if bottom else math.nan


@dataclass(frozen=True)
class Point:
    """A model at one input: its outputs, a random sum of them, and the gradient of that sum."""

    directions: list[Tensor]
    outputs: Tensor
    score: float
    gradients: list[Tensor]

    def along(self, line: Sequence[Tensor]) -> Tensor:
        """vᵢ·∂F/∂xᵢ, all of them."""
        terms = [_products(v, g).double().flatten() for v, g in zip(line, self.gradients, strict=True)]
        return torch.cat(terms)


class Probe:
    """The model as a function of the inputs that scale, relative to their baselines: u ↦ F(b + u).

    It runs with the same draws and the same buffers every time, and is left as it was.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        arguments: Leaves,
        dtype: torch.dtype | None = None,
        *,
        precision: torch.dtype | None = None,
    ) -> None:
        self.model, self.arguments = model, arguments
        own = next(leaf.value.dtype for leaf in arguments.leaves if leaf.scales).to_real()
        self.dtype = dtype or own
        self.epsilon = max(torch.finfo(d).eps for d in (precision, self.dtype) if d is not None)
        #: √eps, far more than rounding leaves after a hundred layers; three times that in half precision.
        self.tolerance = max(1e-6, self.epsilon**0.5 * (1 if self.epsilon < 1e-6 else 3))  # noqa: PLR2004

    def in_double(self) -> Probe:
        """The same in float64, on a copy; itself where the model cannot be copied or does not run in float64."""
        try:
            twin = copy.deepcopy(self.model).double() if isinstance(self.model, nn.Module) else self.model
            probe = Probe(twin, self.arguments, torch.float64)
            with torch.no_grad():
                probe.run(probe.directions())
        except Exception:  # noqa: BLE001 - whatever a module says against it
            return self
        return probe

    def directions(self) -> list[Tensor]:
        """x − b of every input that scales."""
        found = []
        for leaf in self.arguments.leaves:
            if leaf.scales:
                value = leaf.value.detach().clone().to(self._like(leaf.value))
                found.append(value if leaf.baseline is None else value - leaf.baseline.to(value.dtype))
        return found

    def points(self) -> Iterator[tuple[str, list[Tensor]]]:
        """The example, and inputs of its shape with other signs and zeros."""
        example = self.directions()
        generator = torch.Generator().manual_seed(0)

        def drawn(like: Tensor) -> Tensor:
            noise = torch.randn(like.shape, generator=generator, dtype=torch.float64)
            return noise.to(like.device, like.dtype) * _scale(like)

        yield "the example", example
        yield "an input of random signs", [drawn(x) for x in example]
        yield "an input that is half zero", [drawn(x) * (drawn(x).abs() > 0.67 * _scale(x)) for x in example]
        yield "a nonnegative input", [drawn(x).abs() for x in example]

    def run(self, directions: Sequence[Tensor]) -> Any:
        """Whatever the model returns at b + u."""
        moving = iter(directions)
        values: list[Any] = []
        for leaf in self.arguments.leaves:
            value = leaf.value
            if leaf.scales:
                step = next(moving)
                value = step * 1 if leaf.baseline is None else step + leaf.baseline.to(step.dtype)
            elif isinstance(value, Tensor):
                value = value.detach().clone().to(self._like(value))
            values.append(value)
        args, kwargs = self.arguments.rebuild(values)
        with torch.random.fork_rng(), preserved_buffers(with_buffers(self.model)), sdpa_kernel(SDPBackend.MATH):
            torch.manual_seed(0)
            return self.model(*args, **kwargs)

    def matrix(self, directions: Sequence[Tensor], target: Target = None) -> Tensor:
        """The floating-point outputs, or those of a target, as sample × output."""
        with torch.no_grad():
            return self._matrix(self.run(directions), target)

    def at(self, directions: Sequence[Tensor]) -> Point:
        """The outputs at a point, and the gradient of a random sum of them, the same sum at every point."""
        points = [d.detach().clone().requires_grad_() for d in directions]
        with torch.enable_grad():
            outputs = self._matrix(self.run(points), None)
            score = _signed_sum(outputs)
        grads: Sequence[Tensor | None] = [None] * len(points)
        if score.requires_grad:
            grads = torch.autograd.grad(score, points, allow_unused=True)
        gradients = [torch.zeros_like(p) if g is None else g for p, g in zip(points, grads, strict=True)]
        return Point([p.detach() for p in points], outputs.detach(), float(score.detach()), gradients)

    def along(self, directions: Sequence[Tensor], target: Target = None) -> Tensor:
        """J·x for every output: vᵀJ·x differentiated with respect to v, or row by row where that is not implemented."""
        points = [d.clone().requires_grad_() for d in directions]
        with torch.enable_grad():
            out = self._matrix(self.run(points), target)
            v = torch.ones_like(out, requires_grad=True)
            grads: Sequence[Tensor | None] = [None]
            if out.requires_grad:
                grads = torch.autograd.grad(out, points, v, create_graph=True, allow_unused=True)
            if all(g is None or not g.requires_grad for g in grads):
                return torch.zeros_like(out).detach()
            try:
                (moved,) = torch.autograd.grad(_dot(points, grads), v, retain_graph=True, materialize_grads=True)
            except RuntimeError:  # some operators (hardsigmoid, cdist) have no second derivative
                rows = [torch.autograd.grad(y, points, retain_graph=True, allow_unused=True) for y in out.flatten()]
                moved = torch.stack([_dot(points, row) for row in rows]).view_as(out)
        return moved.detach()

    def slope(self, point: Point, line: Sequence[Tensor], step: float) -> float:
        """dF/ds of a random sum of the outputs along a line, as a central difference."""
        ends = ([d + s * v for d, v in zip(point.directions, line, strict=True)] for s in (step, -step))
        ahead, back = (float(_signed_sum(self.matrix(end).double())) for end in ends)
        return (ahead - back) / (2 * step)

    def _matrix(self, output: Any, target: Target) -> Tensor:
        if target is not None:
            first = next(leaf.value for leaf in self.arguments.leaves if leaf.scales)
            batch = len(first) if first.dim() else 1
            return select(output, target, batch).reshape(batch, -1)
        chosen = [torch.view_as_real(t) if t.is_complex() else t for t in tensors_of(output)]
        if not chosen:
            raise TargetError("the model returns no floating-point tensor to measure.")
        rows = chosen[0].shape[0] if chosen[0].dim() else 1
        if rows == 0 or any(t.numel() % rows for t in chosen):
            rows = 1
        return torch.cat([t.reshape(rows, -1) for t in chosen], 1)

    def _like(self, value: Tensor) -> torch.dtype:
        if not scalable(value):
            return value.dtype
        return self.dtype.to_complex() if value.is_complex() else self.dtype


def contradiction(probe: Probe, degree: float, *, exact: bool) -> tuple[str, str] | None:
    """How the model contradicts a proof: the law that fails, and a sentence; it counts if float64 agrees.

    On the example and on an input of random signs: six forward and two backward passes.
    """
    found = _contradiction(probe, degree, exact=exact)
    if found is None or probe.dtype == torch.float64:
        return found
    twin = probe.in_double()
    if twin is not probe:
        return _contradiction(twin, degree, exact=exact)
    return None if found[0] == "slope" else found  # rounded differences say little


def _contradiction(probe: Probe, degree: float, *, exact: bool) -> tuple[str, str] | None:
    beyond = 1.0 if exact else BEYOND_EPSILONS
    (example, x), (other, z) = islice(probe.points(), 2)
    try:
        point = probe.at([beyond * d for d in x])
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises
        if _NO_GRADIENT.search(str(error)):
            return "autograd", f"On {example}, autograd has no gradient: {error}"
        return None  # torch.cond has no gradient of some branches
    found = _euler(probe, point, degree, example) or _scaling(probe, point, degree, example, exact=exact)
    if found is not None:
        return found
    try:
        # The example may lie on a kink.
        point = probe.at([beyond * d for d in z])
        found = _euler(probe, point, degree, other)
        if found is not None or probe.epsilon > torch.finfo(torch.float32).eps:
            return found
        slopes = wrong_slope(probe, point)
    except Exception:  # noqa: BLE001 - a model may refuse inputs unlike the example
        return None
    # What a hook hides may have degree 0, which Euler's identity does not see.
    return None if slopes is None else ("slope", f"On {other}, {slopes}, as if a hook changed the gradient.")


def _euler(probe: Probe, point: Point, degree: float, name: str) -> tuple[str, str] | None:
    terms = point.along(point.directions)
    total, expected = float(terms.sum()), degree * point.score
    size = probe.tolerance * (float(terms.abs().sum()) + abs(expected))
    rounding = 10 * probe.epsilon * abs(degree) * float(point.outputs.double().abs().sum())
    if math.isfinite(total) and math.isfinite(expected) and abs(total - expected) > size + rounding:
        return "Euler", f"On {name}, x·∇F = {total:.6g} where kF = {expected:.6g}, F a sum of the outputs."
    return None


def _scaling(probe: Probe, point: Point, degree: float, name: str, *, exact: bool) -> tuple[str, str] | None:
    base = point.outputs.double()
    terms = float(point.along(point.directions).abs().sum())
    floor = 100 * probe.epsilon * terms / probe.tolerance if math.isfinite(terms) else 0.0
    for alpha in ALPHAS[0 if exact else -1 :: len(ALPHAS) - 1]:
        after = probe.matrix([alpha * d for d in point.directions]).double()
        usable = base.isfinite() & after.isfinite()
        error = scaling_error(base.where(usable, 0), after.where(usable, 0), alpha**degree, floor)
        if error > probe.tolerance:
            return "scaling", f"At {alpha:g} times {name}, F(αx) is off from αᵏF(x) by {error:.2g} of its size."
    return None


def wrong_slope(probe: Probe, point: Point) -> str | None:
    """How autograd's derivative along a random line differs from a difference of outputs, if it does."""
    generator = torch.Generator().manual_seed(2)
    # Zeros stay zeros: relu has no slope there.
    line = [
        x * torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.device, x.dtype)
        for x in point.directions
    ]
    parts = point.along(line)
    gradient, size = float(parts.sum()), _SLOPE * float(parts.square().sum()) ** 0.5
    double = probe.dtype == torch.float64
    step = 1e-6 if double else 2e-3
    difference = probe.slope(point, line, step)
    rounding = 250 * probe.epsilon * float(point.outputs.double().abs().sum()) / step
    if not abs(gradient - difference) > size + rounding:
        return None
    near = probe.slope(point, line, step / 2)
    if not abs(gradient - near) > size + rounding + 5 * abs(difference - near):
        return None
    # A steep function is not a straight line over the first step.
    if double and any(abs(gradient - probe.slope(point, line, nearer)) <= size for nearer in _NEARER_STEPS):
        return None
    return f"autograd's derivative along a line is {gradient:.6g} where outputs change by {near:.6g}"


def wrong_gradient(probe: Probe) -> str | None:
    """Where and how autograd's gradient is not that of the outputs, in float64 where the model has such a copy."""
    probe = probe.in_double()
    for name, start in probe.points():
        try:
            found = wrong_slope(probe, probe.at(start))
        except Exception as error:  # a model may refuse inputs unlike the example
            if _NO_GRADIENT.search(str(error)):
                return f"on {name}, autograd has no gradient: {error}"
            if name == "the example":
                raise
            continue
        if found is not None:
            return f"on {name}, {found}"
    return None


def epsilon_error(probe: Probe, degree: float) -> float | None:
    """How far X-Gradient is from Integrated Gradients on the example, single features, relative to the largest.

    h(t) = ∇F(tx)/tᵏ⁻¹ is constant where F is homogeneous. It is measured at t = 1, 1/2, 1/4 … and integrated by the
    trapezium rule over s = tᵏ: IG = x·∫ tᵏ⁻¹ h dt = x/k·∫ h ds.
    """
    halvings = 4 if probe.epsilon > torch.finfo(torch.float32).eps else 9
    t = [2.0**-j for j in range(halvings)]
    try:
        x = probe.directions()
        points = [probe.at([at * d for d in x]) for at in t]
    except Exception:  # noqa: BLE001 - not measured
        return None
    h = torch.stack([point.along(x) / at ** (degree - 1) for at, point in zip(t, points, strict=True)])
    h = torch.cat([h, h[-1:]])
    s = torch.tensor([at**degree for at in t] + [0.0], dtype=h.dtype, device=h.device)
    gap = (h[0] - torch.trapezoid(h.flip(0), s.flip(0), dim=0)).abs()
    size = float(h[0].abs().max()) if h.numel() else 0.0
    error = float(gap.max()) / size if size else 0.0
    return error if error < math.inf else None  # neither infinite nor NaN


@contextmanager
def quiet_and_eager() -> Iterator[None]:
    """Compiled modules run uncompiled: this checks what they compute, not how fast."""
    with warnings.catch_warnings(), running_eagerly():
        warnings.simplefilter("ignore")
        yield


def tensors_of(output: Any) -> list[Tensor]:
    """The floating-point tensors in a model's output, also in one that looks like a mapping (transformers)."""
    plain = dict(output.items()) if hasattr(output, "items") else output
    return [t for t in pytree.tree_leaves(plain) if scalable(t)]


def _signed_sum(outputs: Tensor) -> Tensor:
    """A sum with random signs, the same ones each time."""
    generator = torch.Generator().manual_seed(1)
    signs = torch.randint(0, 2, outputs.shape, generator=generator).to(outputs.device, outputs.dtype) * 2 - 1
    return (outputs * signs).sum()


def _products(point: Tensor, grad: Tensor) -> Tensor:
    """xᵢ·∂F/∂xᵢ, of complex numbers part by part."""
    if point.is_complex():
        return torch.view_as_real(point) * torch.view_as_real(grad.resolve_conj())
    return point * grad.to_dense()


def _dot(points: Sequence[Tensor], grads: Sequence[Tensor | None]) -> Tensor:
    dots = [_products(p.detach(), g).sum() for p, g in zip(points, grads, strict=True) if g is not None]
    return torch.stack(dots).sum() if dots else torch.zeros(())


def _scale(like: Tensor) -> Tensor:
    size = like.detach().abs().double()
    rms = size.square().mean().sqrt()
    return torch.where(rms > 0, rms, torch.ones_like(rms)).to(like.device, like.dtype.to_real())
