"""The same metrics as torchmetrics classes: updated batch by batch, reduced across processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from axiograd._calls import Model
from axiograd._typing import Target
from axiograd.errors import MissingExtraError
from axiograd.metrics._common import Channels
from axiograd.metrics.distance import completeness_gap, mean_absolute_relative_difference
from axiograd.metrics.localisation import best_overlap, energy_inside, pointing_game
from axiograd.metrics.masking import FRACTIONS, MaskingMetric, MaskingValue, masking_curves

try:
    from torchmetrics import Metric
except ImportError as error:
    raise MissingExtraError("torchmetrics", "metrics", "A metric class") from error


@dataclass(frozen=True, eq=False)
class SampleSummary:
    """A mean over samples, its standard error, and the number of samples."""

    mean: Tensor
    standard_error: Tensor
    n_samples: int


class SampleMean(Metric):
    """A mean over samples whose states are sums, so that batches and processes can be added up in any order."""

    is_differentiable = False
    full_state_update = False
    higher_is_better = True
    total: Tensor
    squares: Tensor
    count: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._add_sums("total", "squares", "count")

    def _add_sums(self, *names: str, shape: tuple[int, ...] = ()) -> None:
        for name in names:
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")

    def _add(self, values: Tensor) -> None:
        values = values.detach().to(self.total)
        self.total += values.sum()
        self.squares += values.square().sum()
        self.count += len(values)

    def compute(self) -> Tensor:
        """The mean over all samples so far."""
        return self.total / self.count

    def plot(self, val: Tensor | Sequence[Tensor] | None = None, ax: Any = None) -> Any:
        """Plot a value, or several as a line; without one, the current mean."""
        return self._plot(val, ax)

    def _over_processes(self) -> Any:
        """Within this context, states are the sums over all processes."""
        return self.sync_context(should_sync=not self._is_synced, should_unsync=not self._is_synced)

    def summary(self) -> SampleSummary:
        """Mean and standard error over the samples of all processes."""
        with self._over_processes():
            mean = self.total / self.count
            variance = (self.squares - self.count * mean.square()).clamp(min=0) / (self.count - 1)
            return SampleSummary(mean, (variance / self.count).sqrt(), int(self.count))


class _Mask(SampleMean):
    """The area under one masking curve."""

    name: ClassVar[MaskingMetric]
    curve_total: Tensor

    def __init__(
        self,
        *,
        fractions: Sequence[float] = FRACTIONS,
        masking: MaskingValue = None,
        channels: Channels = "mean",
        max_rows: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.fractions = tuple(fractions)
        self.options: dict[str, Any] = {"masking": masking, "channels": channels, "max_rows": max_rows}
        self._add_sums("curve_total", shape=(len(self.fractions),))

    def update(
        self,
        model: Model,
        inputs: Tensor,
        attributions: Tensor,
        target: Target = None,
        *,
        labels: Any = None,
        additional_forward_args: Any = None,
    ) -> None:
        """Mask a batch and add its samples."""
        found = masking_curves(
            *(model, inputs, attributions, target),
            labels=labels,
            metrics=(self.name,),
            fractions=self.fractions,
            additional_forward_args=additional_forward_args,
            **self.options,
        )[self.name]
        self._add(found.areas)
        self.curve_total += found.scores.sum(0).to(self.curve_total)

    def curve(self) -> Tensor:
        """The mean score at each fraction, over the samples of all processes."""
        with self._over_processes():
            return self.curve_total / self.count


class KeepPositiveMask(_Mask):
    """KPM, the area under the target's logit while only the most positive features are kept.

    >>> x, weights = torch.ones(4, 2), torch.tensor([3.0, -2.0])
    >>> float(KeepPositiveMask(fractions=(0.5, 1.0))(lambda x: x @ weights, x, x * weights))
    1.5
    """

    name = "KPM"


class KeepNegativeMask(_Mask):
    """KNM, the area under the target's logit while only the most negative features are kept.

    >>> x, weights = torch.ones(4, 2), torch.tensor([3.0, -2.0])
    >>> float(KeepNegativeMask(fractions=(0.5, 1.0))(lambda x: x @ weights, x, x * weights))
    -1.0
    """

    name = "KNM"
    higher_is_better = False


class KeepAbsoluteMask(_Mask):
    """KAM, the area under the top-1 accuracy in percent while the features of largest magnitude are kept.

    >>> x = torch.tensor([[2.0, 1.0]])
    >>> float(KeepAbsoluteMask(fractions=(0.5, 1.0))(lambda x: x, x, x, target=0))
    50.0
    """

    name = "KAM"


class RemoveAbsoluteMask(_Mask):
    """RAM, the area under the top-1 accuracy in percent while the features of largest magnitude are removed first.

    >>> x = torch.tensor([[2.0, 1.0]])
    >>> float(RemoveAbsoluteMask(fractions=(0.5, 1.0))(lambda x: x, x, x, target=0))
    25.0
    """

    name = "RAM"
    higher_is_better = False


class MeanAbsoluteRelativeDifference(SampleMean):
    """The mean of `mean_absolute_relative_difference` over samples.

    >>> metric = MeanAbsoluteRelativeDifference()
    >>> float(metric(torch.tensor([[1.5, 2.0]]), torch.tensor([[1.0, 2.0]])))
    0.25
    """

    higher_is_better = False
    excluded: Tensor
    rows: Tensor

    def __init__(self, *, threshold: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.threshold = threshold
        self._add_sums("excluded", "rows")

    def update(self, attributions: Tensor, integrated_gradients: Tensor) -> None:
        """Compare a batch and add its samples; those whose IG is zero everywhere are only counted as excluded."""
        found = mean_absolute_relative_difference(attributions, integrated_gradients, threshold=self.threshold)
        self._add(found.per_sample[found.per_sample.isfinite()])
        self.excluded += found.excluded_fraction * len(attributions)
        self.rows += len(attributions)

    def excluded_fraction(self) -> Tensor:
        """The share of components left out, over the samples of all processes."""
        with self._over_processes():
            return self.excluded / self.rows


class CompletenessGap(SampleMean):
    """The mean of |Σ A − (F(x) − F(x′))| over samples, in units of the output.

    >>> x = torch.tensor([[1.0, 2.0]])
    >>> float(CompletenessGap()(lambda x: (x**2).sum(1), x, x * 2 * x))
    5.0
    """

    higher_is_better = False

    def update(self, model: Model, inputs: Any, attributions: Any, target: Target = None, **options: Any) -> None:
        """Measure a batch and add its samples."""
        self._add(completeness_gap(model, inputs, attributions, target, **options).delta.abs())


class EnergyInside(SampleMean):
    """The mean share of positive attribution inside box or mask.

    >>> float(EnergyInside()(torch.tensor([[[3.0, 1.0], [-5.0, 0.0]]]), torch.tensor([[0, 0, 1, 2]])))
    0.75
    """

    def __init__(self, *, channels: Channels = "sum", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.channels = channels

    def update(self, attributions: Tensor, regions: Tensor) -> None:
        """Measure a batch and add its samples."""
        self._add(self._measure(attributions, regions))

    def _measure(self, attributions: Tensor, regions: Tensor) -> Tensor:
        return energy_inside(attributions, regions, channels=self.channels)


class PointingGame(EnergyInside):
    """How often the highest attribution lies inside, from 0 to 1.

    >>> float(PointingGame()(torch.tensor([[[3.0, 1.0], [-5.0, 0.0]]]), torch.tensor([[0, 0, 1, 2]])))
    1.0
    """

    def __init__(self, *, tolerance: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tolerance = tolerance

    def _measure(self, attributions: Tensor, regions: Tensor) -> Tensor:
        return pointing_game(attributions, regions, tolerance=self.tolerance, channels=self.channels)


class BestOverlapIoU(EnergyInside):
    """The mean over samples of the IoU at the best threshold.

    >>> float(BestOverlapIoU()(torch.tensor([[[3.0, 1.0], [2.0, 0.0]]]), torch.tensor([[0, 0, 1, 2]])))
    1.0
    """

    def _measure(self, attributions: Tensor, regions: Tensor) -> Tensor:
        return best_overlap(attributions, regions, channels=self.channels).iou
