"""A model evaluated at chosen inputs, with the same draws and the same buffers every time, and left as it was."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from axiograd._calls import Leaves, scalable
from axiograd._state import preserved_buffers, with_buffers
from axiograd.errors import InputError

#: The name of the point that the user gave.
EXAMPLE = "the example"


@dataclass(frozen=True)
class Point:
    """A model at one input: its outputs, a random sum of them, and the gradient of that sum."""

    directions: list[Tensor]
    outputs: list[Tensor]
    score: float
    gradients: list[Tensor]

    @property
    def size(self) -> float:
        """Σ|output|."""
        return sum(float(out.abs().double().sum()) for out in self.outputs)


class ModelProbe:
    """The model as a function of the inputs that scale, taken relative to their baselines: u ↦ F(b + u)."""

    def __init__(
        self,
        model: Callable[..., Any],
        arguments: Leaves,
        dtype: torch.dtype | None = None,
        *,
        precision: torch.dtype | None = None,
    ) -> None:
        self.model, self.arguments = model, arguments
        self.own_dtype = next(leaf.value.dtype for leaf in arguments.leaves if leaf.scales).to_real()
        self.dtype = dtype or self.own_dtype
        coarsest = max((d for d in (precision, self.dtype) if d is not None), key=lambda d: torch.finfo(d).eps)
        self.epsilon = torch.finfo(coarsest).eps
        #: √eps, far more than rounding leaves after a hundred layers; three times that in half precision.
        self.tolerance = max(1e-6, self.epsilon**0.5 * (1 if self.epsilon < 1e-6 else 3))  # noqa: PLR2004

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
        yield EXAMPLE, example
        generator = torch.Generator().manual_seed(0)

        def drawn(like: Tensor) -> Tensor:
            noise = torch.randn(like.shape, generator=generator, dtype=torch.float64)
            return noise.to(like.device, like.dtype) * _scale(like)

        yield "an input of random signs", [drawn(x) for x in example]
        yield "an input that is half zero", [drawn(x) * (drawn(x).abs() > 0.67 * _scale(x)) for x in example]
        yield "a nonnegative input", [drawn(x).abs() for x in example]

    def leaves(self, directions: Sequence[Tensor]) -> list[Any]:
        """All leaves of the call, with b + u where an input scales."""
        moving = iter(directions)
        values: list[Any] = []
        for leaf in self.arguments.leaves:
            if leaf.scales:
                step = next(moving)
                values.append(step * 1 if leaf.baseline is None else step + leaf.baseline.to(step.dtype))
            elif scalable(leaf.value):
                values.append(leaf.value.detach().clone().to(self._like(leaf.value)))
            else:
                values.append(leaf.value.clone() if isinstance(leaf.value, Tensor) else leaf.value)
        return values

    def raw(self, directions: Sequence[Tensor]) -> Any:
        """Whatever the model returns."""
        args, kwargs = self.arguments.rebuild(self.leaves(directions))
        with torch.random.fork_rng(), preserved_buffers(with_buffers(self.model)):
            _seed()
            output = self.model(*args, **kwargs)
        require_numbers(output)
        return output

    def outputs(self, directions: Sequence[Tensor]) -> list[Tensor]:
        """The floating-point tensors that the model returns."""
        with torch.no_grad():
            return tensors_of(self.raw(directions))

    def at(self, directions: Sequence[Tensor]) -> Point:
        """The outputs at a point, and the gradient of a random sum of them, the same sum at every point."""
        points = [d.detach().clone().requires_grad_() for d in directions]
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            outputs = tensors_of(self.raw(points))
        score = _signed_sum(_real(outputs))
        grads: Sequence[Tensor | None] = [None] * len(points)
        if score.requires_grad:
            grads = torch.autograd.grad(score, points, allow_unused=True)
        gradients = [torch.zeros_like(p) if g is None else g for p, g in zip(points, grads, strict=True)]
        return Point([p.detach() for p in points], [out.detach() for out in outputs], float(score.detach()), gradients)

    def euler(self, point: Point, degree: float) -> tuple[float, float, float, float] | None:
        """x·∇F, kF, Σ|xᵢ·∂F/∂xᵢ| + |kF| and kF's rounding, F a random sum of outputs; None if they are not finite."""
        terms = [products(x, g) for x, g in zip(point.directions, point.gradients, strict=True)]
        total = sum(float(t.double().sum()) for t in terms)
        expected = degree * point.score
        size = sum(float(t.double().abs().sum()) for t in terms) + abs(expected)
        found = (total, expected, size, 10 * self.epsilon * abs(degree) * point.size)
        return found if torch.tensor(found).isfinite().all() else None

    def slope(self, point: Point, line: Sequence[Tensor], step: float) -> tuple[float, float, float, float]:
        """dF/ds of a random sum of the outputs along a line: autograd's, a central difference and its uncertainty.

        Last comes √Σ(vᵢ·∂F/∂xᵢ)², the size of such a slope on a line of random signs.
        """
        parts = [products(d, g).double() for d, g in zip(line, point.gradients, strict=True)]
        wide, near = (self._difference(point.directions, line, h) for h in (step, step / 2))
        doubt = abs(wide - near) + 50 * self.epsilon * point.size / step
        typical = sum(float(p.square().sum()) for p in parts) ** 0.5
        return sum(float(p.sum()) for p in parts), near, doubt, typical

    def _difference(self, directions: Sequence[Tensor], line: Sequence[Tensor], step: float) -> float:
        ends = ([d + s * v for d, v in zip(directions, line, strict=True)] for s in (step, -step))
        ahead, back = (float(_signed_sum([t.double() for t in _real(self.outputs(end))])) for end in ends)
        return (ahead - back) / (2 * step)

    def _like(self, value: Tensor) -> torch.dtype:
        return self.dtype.to_complex() if value.is_complex() else self.dtype


def _real(outputs: Sequence[Tensor]) -> list[Tensor]:
    return [torch.view_as_real(t) if t.is_complex() else t for t in outputs]


def _signed_sum(outputs: Sequence[Tensor]) -> Tensor:
    """A sum with random signs, the same ones each time."""
    generator = torch.Generator().manual_seed(1)
    parts = []
    for out in outputs:
        signs = torch.randint(0, 2, out.shape, generator=generator).to(out.device, out.dtype) * 2 - 1
        parts.append((out * signs).sum())
    return torch.stack([p.to(parts[0].dtype) for p in parts]).sum()


def tensors_of(output: Any) -> list[Tensor]:
    """The floating-point tensors in a model's output, also in one that looks like a mapping (transformers)."""
    plain = dict(output.items()) if hasattr(output, "items") else output
    return [t for t in pytree.tree_leaves(plain) if scalable(t)]


def require_numbers(output: Any) -> None:
    """Refuse tensors without data that an earlier trace left in something that the model keeps."""
    if any(isinstance(t, FakeTensor) for t in tensors_of(output)):
        raise InputError(
            "the model returns a FakeTensor, which has no numbers: a trace (torch.export, torch.compile) filled a "
            "cache of the model, such as a global or functools.lru_cache. Clear the cache and run the model once."
        )


def in_double(model: Callable[..., Any], arguments: Leaves) -> Callable[..., Any] | None:
    """A float64 copy of the model, None if it cannot be copied or does not run in float64."""
    twin = model
    if isinstance(model, nn.Module):
        try:
            twin = copy.deepcopy(model).double()
        except Exception:  # noqa: BLE001 - whatever a module says against being copied
            return None
    probe = ModelProbe(twin, arguments, torch.float64)
    try:
        probe.outputs(probe.directions())
    except Exception:  # noqa: BLE001 - it does not run in float64
        return None
    return twin


def products(point: Tensor, grad: Tensor) -> Tensor:
    """xᵢ·∂F/∂xᵢ, of complex numbers part by part."""
    if point.is_complex():
        return torch.view_as_real(point) * torch.view_as_real(grad.resolve_conj())
    return point * grad.to_dense()


def _scale(like: Tensor) -> Tensor:
    size = like.detach().abs().double()
    size = torch.where(size.isfinite(), size, 0)
    rms = size.square().mean().sqrt() if like.numel() else size.sum()
    return torch.where(rms > 0, rms, torch.ones_like(rms)).to(like.device, like.dtype.to_real())


def _seed() -> None:
    """Without an accelerator, `torch.manual_seed` spends its time on a traceback for each device that may come."""
    if torch.accelerator.is_available():
        torch.manual_seed(0)
    else:
        torch.default_generator.manual_seed(0)
