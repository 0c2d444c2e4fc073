"""How far attributions are from Integrated Gradients, component by component (appendix B.1 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from axiograd.attribution.passes import listed
from axiograd.errors import ConfigurationError, InputError, NotFiniteError
from axiograd.metrics._statistics import standard_error


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
    batch = len(attributions)
    a, ig = (t.detach().double().reshape(batch, -1) for t in (attributions, integrated_gradients))
    finite = (a.isfinite() & ig.isfinite()).all(1)
    if not bool(finite.all()):
        raise NotFiniteError(f"NaN or Inf in the attributions of sample {listed(~finite)}: leave these samples out.")
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
