"""The same metrics as torchmetrics classes: updated batch by batch, reduced across processes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from axiograd.errors import MissingExtraError
from axiograd.metrics.distance import completeness_gap, mean_absolute_relative_difference
from axiograd.metrics.localisation import best_overlap, energy_inside, pointing_game
from axiograd.metrics.masking import FRACTIONS, MaskingMetric, masking_curves

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
    """The mean over samples of what a function measures.

    Options of the class are keywords of the function and of torchmetrics; `update` takes the function's arguments for
    a batch. States are sums, so that batches and processes can be added up in any order.
    """

    is_differentiable = False
    full_state_update = False
    higher_is_better = True
    function: ClassVar[Callable[..., Any]]
    total: Tensor
    squares: Tensor
    count: Tensor

    def __init__(self, **options: Any) -> None:
        signature = inspect.signature(self.function)
        own = signature.parameters.keys() & options.keys()
        super().__init__(**{name: value for name, value in options.items() if name not in own})
        self.measure = partial(self.function, **{name: options[name] for name in own})
        # From the keywords of a MetricCollection, each metric takes those that its update knows.
        self._update_signature = signature
        self._add_sums("total", "squares", "count")

    def _add_sums(self, *names: str, shape: tuple[int, ...] = ()) -> None:
        for name in names:
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, *batch: Any, **arguments: Any) -> None:
        """Measure a batch, with the arguments of the function, and add its samples."""
        self._add(self.measure(*batch, **arguments))

    def _add(self, found: Any) -> None:
        """Add what the function found: one value per sample."""
        values = found.detach().to(self.total)
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

    function = staticmethod(masking_curves)
    name: ClassVar[MaskingMetric]
    curve_total: Tensor

    def __init__(self, *, fractions: Sequence[float] = FRACTIONS, **options: Any) -> None:
        super().__init__(metrics=(self.name,), fractions=fractions, **options)
        self._add_sums("curve_total", shape=(len(fractions),))

    def _add(self, found: Any) -> None:
        curve = found[self.name]
        super()._add(curve.areas)
        self.curve_total += curve.scores.sum(0).to(self.curve_total)

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

    function = staticmethod(mean_absolute_relative_difference)
    higher_is_better = False
    excluded: Tensor
    rows: Tensor

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._add_sums("excluded", "rows")

    def _add(self, found: Any) -> None:
        # Samples whose IG is zero everywhere are only counted as excluded.
        super()._add(found.per_sample[found.per_sample.isfinite()])
        self.excluded += found.excluded_fraction * len(found.per_sample)
        self.rows += len(found.per_sample)

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

    function = staticmethod(completeness_gap)
    higher_is_better = False

    def _add(self, found: Any) -> None:
        super()._add(found.delta.abs())


class EnergyInside(SampleMean):
    """The mean share of positive attribution inside box or mask.

    >>> float(EnergyInside()(torch.tensor([[[3.0, 1.0], [-5.0, 0.0]]]), torch.tensor([[0, 0, 1, 2]])))
    0.75
    """

    function = staticmethod(energy_inside)


class PointingGame(SampleMean):
    """How often the highest attribution lies inside, from 0 to 1.

    >>> float(PointingGame()(torch.tensor([[[3.0, 1.0], [-5.0, 0.0]]]), torch.tensor([[0, 0, 1, 2]])))
    1.0
    """

    function = staticmethod(pointing_game)


class BestOverlapIoU(SampleMean):
    """The mean over samples of the IoU at the best threshold.

    >>> float(BestOverlapIoU()(torch.tensor([[[3.0, 1.0], [2.0, 0.0]]]), torch.tensor([[0, 0, 1, 2]])))
    1.0
    """

    function = staticmethod(best_overlap)

    def _add(self, found: Any) -> None:
        super()._add(found.iou)
