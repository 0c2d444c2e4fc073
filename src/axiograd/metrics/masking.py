"""Masking curves: how a model's answer changes while features are masked in the order of their attributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from axiograd._calls import Model, read_call
from axiograd._typing import Target
from axiograd.attribution.memory_order import MemoryOrder, copies_per_pass, prefers_channels_last
from axiograd.errors import ConfigurationError
from axiograd.metrics._evaluation import evaluating, require_tensor
from axiograd.metrics._masked_copies import Background, MaskedCopies, Scoring
from axiograd.metrics._statistics import standard_error
from axiograd.metrics.masking_value import MaskingValue
from axiograd.metrics.ranking import ORDERS, Channels, per_feature

#: Keep Positive, Keep Negative, Keep Absolute and Remove Absolute Mask.
MaskingMetric: TypeAlias = Literal["KPM", "KNM", "KAM", "RAM"]

#: 16 fractions of features kept, geometrically spaced.
FRACTIONS: tuple[float, ...] = tuple(float(f) for f in np.geomspace(0.01, 1.0, 16))


@dataclass(frozen=True, eq=False)
class MaskingCurve:
    """One masking metric: a score per sample and fraction, the area below it, and their standard errors."""

    name: str
    fractions: Tensor  # [fractions]
    scores: Tensor  # [samples, fractions]: the target's logit, or 100 where the top class is right and 0 where not

    @property
    def areas(self) -> Tensor:
        """∫ score d fraction by the trapezoid rule, per sample."""
        return torch.trapezoid(self.scores, self.fractions, dim=1)

    @property
    def area(self) -> float:
        """Mean area: the number in the paper's Table 3."""
        return float(self.areas.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of `area` over samples."""
        return float(standard_error(self.areas))

    @property
    def curve(self) -> Tensor:
        """Mean score at each fraction."""
        return self.scores.mean(0)

    @property
    def curve_standard_error(self) -> Tensor:
        """Standard error of `curve` over samples."""
        return standard_error(self.scores)

    def __str__(self) -> str:
        return f"{self.name} {self.area:.2f} ± {self.standard_error:.2f} ({len(self.scores)} samples)"


def masking_curves(
    model: Model,
    inputs: Tensor,
    attributions: Tensor,
    target: Target = None,
    *,
    labels: Any = None,
    metrics: Sequence[MaskingMetric] = ("KPM", "KNM", "KAM", "RAM"),
    fractions: Sequence[float] | Tensor = FRACTIONS,
    masking: MaskingValue = None,
    channels: Channels = "mean",
    additional_forward_args: Any = None,
    max_rows: int | None = None,
) -> dict[str, MaskingCurve]:
    """KPM, KNM: the target's logit, KAM, RAM: top-1 accuracy in percent, while only a fraction of features is kept.

    Keep-positive keeps the highest positive attributions (never a feature whose attribution is not positive),
    keep-negative the lowest negative ones, keep-absolute the largest magnitudes, remove-absolute the smallest ones that
    are not zero. All other features are replaced by ``masking`` (`Blur`, "mean", "zero", a tensor or a callable).
    Accuracy is with respect to ``labels``, by default ``target``. No more than ``max_rows`` masked copies are in
    memory at once, by default as many as the processor is fast with (eight photos, for most networks). Images go
    through convolutions on a processor in channels-last order, where the model takes it.

    >>> weights = torch.tensor([3.0, -2.0, 1.0, -4.0])
    >>> x = torch.ones(1, 4)
    >>> curves = masking_curves(
    ...     lambda x: x @ weights, x, x * weights, metrics=("KPM", "KNM"), fractions=(0.25, 0.5, 0.75, 1.0)
    ... )
    >>> curves["KPM"].curve, curves["KNM"].curve
    (tensor([3., 4., 4., 4.], dtype=torch.float64), tensor([-4., -6., -6., -6.], dtype=torch.float64))
    """
    x = require_tensor(inputs).detach()
    keep = _read_fractions(fractions).to(x.device)
    unknown = [m for m in metrics if m not in ORDERS]
    if unknown or not metrics:
        raise ConfigurationError(f"metrics={list(metrics)!r}: expected some of {', '.join(ORDERS)}.")
    if max_rows is not None and max_rows < 1:
        raise ConfigurationError(f"max_rows={max_rows}: expected at least 1.")
    most = copies_per_pass(model, x) if max_rows is None else max_rows
    order = MemoryOrder(channels_last=prefers_channels_last(model, x))
    a = per_feature(attributions.to(x.device), x, channels)
    scoring, arguments = Scoring.read(metrics, target, labels, x), read_call(x, additional_forward_args)
    background = Background(x, masking)
    pixelwise = x.dim() > 2 and channels != "none"  # noqa: PLR2004  # more than [batch, features]
    # As many samples as fill one pass per metric: their background and ranks are then no larger than a pass.
    groups = torch.arange(len(x), device=x.device).split(max(1, most // len(keep)))
    parts = []
    with evaluating(model):
        for samples in groups:
            jobs = MaskedCopies(x[samples], background.of(samples), a[samples], metrics, keep, pixelwise=pixelwise)
            parts.append(jobs.scores(model, scoring, arguments, samples, most, order))
    scores = torch.cat(parts, dim=1)
    return {m: MaskingCurve(m, keep, scores[i]) for i, m in enumerate(metrics)}


def _read_fractions(fractions: Sequence[float] | Tensor) -> Tensor:
    read = torch.as_tensor(fractions, dtype=torch.float64)
    if read.dim() != 1 or len(read) < 2 or not bool(((read >= 0) & (read <= 1)).all() & (read.diff() > 0).all()):  # noqa: PLR2004
        raise ConfigurationError(
            f"fractions={read.tolist()}: expected at least two increasing numbers between 0 and 1 for a curve."
        )
    return read


def keep_positive_mask(
    model: Model, inputs: Tensor, attributions: Tensor, target: Target = None, **options: Any
) -> MaskingCurve:
    """KPM: the target's logit while only the most positive features are kept; higher is better.

    >>> weights = torch.tensor([3.0, -2.0])
    >>> x = torch.ones(1, 2)
    >>> keep_positive_mask(lambda x: x @ weights, x, x * weights, fractions=(0.5, 1.0)).area
    1.5
    """
    return masking_curves(model, inputs, attributions, target, metrics=("KPM",), **options)["KPM"]


def keep_negative_mask(
    model: Model, inputs: Tensor, attributions: Tensor, target: Target = None, **options: Any
) -> MaskingCurve:
    """KNM: the target's logit while only the most negative features are kept; lower is better.

    >>> weights = torch.tensor([3.0, -2.0])
    >>> x = torch.ones(1, 2)
    >>> keep_negative_mask(lambda x: x @ weights, x, x * weights, fractions=(0.5, 1.0)).area
    -1.0
    """
    return masking_curves(model, inputs, attributions, target, metrics=("KNM",), **options)["KNM"]


def keep_absolute_mask(
    model: Model, inputs: Tensor, attributions: Tensor, target: Target = None, **options: Any
) -> MaskingCurve:
    """KAM: top-1 accuracy in percent while only the features of largest magnitude are kept; higher is better.

    >>> x = torch.tensor([[2.0, 1.0]])
    >>> keep_absolute_mask(lambda x: x, x, x, target=0, fractions=(0.5, 1.0)).curve
    tensor([100., 100.], dtype=torch.float64)
    """
    return masking_curves(model, inputs, attributions, target, metrics=("KAM",), **options)["KAM"]


def remove_absolute_mask(
    model: Model, inputs: Tensor, attributions: Tensor, target: Target = None, **options: Any
) -> MaskingCurve:
    """RAM: top-1 accuracy in percent while the features of largest magnitude are removed first; lower is better.

    >>> x = torch.tensor([[2.0, 1.0]])
    >>> remove_absolute_mask(lambda x: x, x, x, target=0, fractions=(0.5, 1.0)).curve
    tensor([  0., 100.], dtype=torch.float64)
    """
    return masking_curves(model, inputs, attributions, target, metrics=("RAM",), **options)["RAM"]
