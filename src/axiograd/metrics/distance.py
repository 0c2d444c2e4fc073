"""How far attributions are from Integrated Gradients, and from adding up to the change of the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from axiograd._calls import Model, read_call, select
from axiograd._state import in_mode
from axiograd._typing import Attributions, Inputs, Target
from axiograd.attribution import Completeness, IntegratedGradients
from axiograd.attribution.integrated_gradients import Rule
from axiograd.errors import ConfigurationError, InputError, TargetError
from axiograd.metrics._common import require_finite, require_tensor, standard_error

#: The paper's numbers of steps.
STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, eq=False)
class RelativeDifference:
    """A mean absolute relative difference, and what was left out of it."""

    value: float  # over the components that are not near zero
    standard_error: float  # of `value`, over samples
    per_sample: Tensor
    plain: float  # the paper's formula over every component where it is defined
    threshold: float  # relative to each sample's mean |IG|
    excluded_fraction: float
    excluded_difference: float  # mean |IG − A| of the excluded components, relative to the mean |IG|

    def __str__(self) -> str:
        return (
            f"{100 * self.value:.2f} % (plain {100 * self.plain:.2f} %; {100 * self.excluded_fraction:.2f} % of "
            f"components have |IG| <= {self.threshold:g} of the sample's mean |IG|, their difference is "
            f"{100 * self.excluded_difference:.2g} % of that mean)"
        )


def mean_absolute_relative_difference(
    attributions: Tensor, integrated_gradients: Tensor, *, threshold: float = 1e-3
) -> RelativeDifference:
    """d = 1/(n|X|) · Σₓ Σᵢ |IGᵢ − Aᵢ| / |IGᵢ|, leaving out |IGᵢ| ≤ threshold · mean |IG| of the sample.

    There the quotient measures rounding, not attribution; how many they are and how far off is part of the result,
    and so is the plain formula, which leaves out only IGᵢ = 0. Samples weigh the same.

    >>> ig = torch.tensor([[1.0, -2.0, 0.0, 1e-9]])
    >>> difference = mean_absolute_relative_difference(torch.tensor([[1.1, -2.0, 0.0, 2e-9]]), ig)
    >>> round(difference.value, 4), round(difference.plain, 4), difference.excluded_fraction
    (0.05, 0.3667, 0.5)
    """
    if attributions.shape != integrated_gradients.shape or attributions.dim() < 1 or attributions.numel() == 0:
        raise InputError(
            f"attributions of shape {tuple(attributions.shape)} against {tuple(integrated_gradients.shape)}: expected "
            "the same shape, samples first."
        )
    if threshold < 0:
        raise ConfigurationError(f"threshold={threshold}: expected at least 0.")
    a, ig = (t.detach().double().reshape(len(t), -1) for t in (attributions, integrated_gradients))
    require_finite(ig - a)
    difference, magnitude = (ig - a).abs(), ig.abs()
    scale = magnitude.mean(1, keepdim=True)
    counted = magnitude > threshold * scale
    relative = torch.where(magnitude > 0, difference / magnitude, torch.nan)
    per_sample = torch.where(counted, relative, torch.nan).nanmean(1)
    excluded = difference[~counted].mean() / scale.mean() if bool((~counted).any()) else torch.zeros(())
    # A sample whose IG is zero everywhere has no relative difference; it counts as excluded, not as a sample.
    defined = per_sample[per_sample.isfinite()]
    return RelativeDifference(
        float(defined.mean()) if len(defined) else float("nan"),
        float(standard_error(defined)) if len(defined) else float("nan"),
        per_sample,
        float(relative.nanmean()),
        threshold,
        float((~counted).double().mean()),
        float(excluded),
    )


@dataclass(frozen=True, eq=False)
class Convergence:
    """Mean absolute difference to many steps, for each smaller number of steps."""

    steps: tuple[int, ...]
    reference_steps: int
    per_sample: Tensor  # [steps, samples]
    scale: float  # mean |IG| with the reference's steps, to read the differences against

    @property
    def differences(self) -> Tensor:
        """Mean over samples and components, one number for each of `steps`."""
        return self.per_sample.mean(1)

    @property
    def standard_errors(self) -> Tensor:
        """Of `differences`, over samples."""
        return standard_error(self.per_sample.T)

    def __str__(self) -> str:
        lines = []
        for n, difference in zip(self.steps, self.differences.tolist(), strict=True):
            # A model that ignores its input has no scale: all attributions are 0.
            relative = f" ({difference / self.scale:.2%})" if self.scale > 0 else ""
            lines.append(f"{n:>4} steps: {difference:.3e}{relative}")
        return "\n".join([f"mean |IG(n) - IG({self.reference_steps})|, and relative to the mean |IG|", *lines])


def integrated_gradients_convergence(
    model: Model,
    inputs: Tensor,
    target: Target = None,
    *,
    steps: Sequence[int] = STEPS,
    reference_steps: int = 300,
    method: Rule = "gausslegendre",
    baselines: Any = None,
    additional_forward_args: Any = None,
    internal_batch_size: int | None = None,
) -> Convergence:
    """mean |IG(n) − IG(300)| over samples and components, for n = 1, 2, 4, … 256 steps.

    >>> result = integrated_gradients_convergence(lambda x: (x**3).sum(1), torch.tensor([[1.0, 2.0]]), steps=(1, 2))
    >>> result.differences
    tensor([1.1250, 0.0000], dtype=torch.float64)
    """
    x = require_tensor(inputs)

    def attribute(n_steps: int) -> Tensor:
        ig = IntegratedGradients(model, n_steps, method, internal_batch_size)
        found: Tensor = ig.attribute(x, target, baselines=baselines, additional_forward_args=additional_forward_args)
        return found.flatten(1).double()

    reference = attribute(reference_steps)
    per_sample = torch.stack([(attribute(n) - reference).abs().mean(1) for n in steps])
    return Convergence(tuple(steps), reference_steps, per_sample, float(reference.abs().mean()))


def completeness_gap(
    model: Model,
    inputs: Inputs,
    attributions: Attributions,
    target: Target = None,
    *,
    baselines: Any = None,
    additional_forward_args: Any = None,
) -> Completeness:
    """Σᵢ Aᵢ − (F(x) − F(x′)) per sample, and relative to the root mean square of F(x) − F(x′).

    Works on any attributions, wherever they come from; the baseline is zero unless given.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> gap = completeness_gap(lambda x: (x**2).sum(1), x, x * 2 * x)  # Input×Gradient of a square: twice too much
    >>> gap.delta
    tensor([ 5., 25.])
    """
    call = read_call(inputs, additional_forward_args)
    given = attributions.values() if isinstance(attributions, dict) else attributions
    parts = [given] if isinstance(given, Tensor) else list(filter(torch.is_tensor, given))
    shapes, expected = ([tuple(t.shape) for t in tensors] for tensors in (parts, call.features))
    if shapes != expected:
        raise InputError(
            f"attributions of shapes {shapes} for inputs of shapes {expected}: expected the inputs' own shapes."
        )
    if isinstance(target, str):
        raise TargetError(f"target={target!r}: completeness is about one scalar per sample.")
    reference = call.fill(baselines, "baselines")
    with in_mode(model, training=False), torch.no_grad():
        at_input, at_baseline = (
            select(call.call(model, features), target, call.batch) for features in (call.features, reference)
        )
    difference = at_input - at_baseline
    delta = torch.stack([a.detach().flatten(1).sum(1) for a in parts]).sum(0) - difference
    return Completeness.of(delta, difference, "zero" if baselines is None else "given")
