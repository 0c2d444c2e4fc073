"""How good attributions are: masking curves, differences to Integrated Gradients, localisation.

The classes need torchmetrics (``pip install 'axiograd[metrics]'``) and are imported when they are first named.
"""

from typing import TYPE_CHECKING, Any

from axiograd.metrics.agreement import Agreement as Agreement, agreement as agreement
from axiograd.metrics.distance import (
    Convergence as Convergence,
    RelativeDifference as RelativeDifference,
    completeness_gap as completeness_gap,
    integrated_gradients_convergence as integrated_gradients_convergence,
    mean_absolute_relative_difference as mean_absolute_relative_difference,
)
from axiograd.metrics.localisation import (
    BestOverlap as BestOverlap,
    best_overlap as best_overlap,
    boxes_to_masks as boxes_to_masks,
    energy_inside as energy_inside,
    pointing_game as pointing_game,
)
from axiograd.metrics.masking import (
    FRACTIONS as FRACTIONS,
    Blur as Blur,
    MaskingCurve as MaskingCurve,
    keep_absolute_mask as keep_absolute_mask,
    keep_negative_mask as keep_negative_mask,
    keep_positive_mask as keep_positive_mask,
    masking_curves as masking_curves,
    remove_absolute_mask as remove_absolute_mask,
)

if TYPE_CHECKING:
    from axiograd.metrics.metric_classes import (
        BestOverlapIoU as BestOverlapIoU,
        CompletenessGap as CompletenessGap,
        EnergyInside as EnergyInside,
        KeepAbsoluteMask as KeepAbsoluteMask,
        KeepNegativeMask as KeepNegativeMask,
        KeepPositiveMask as KeepPositiveMask,
        MeanAbsoluteRelativeDifference as MeanAbsoluteRelativeDifference,
        PointingGame as PointingGame,
        RemoveAbsoluteMask as RemoveAbsoluteMask,
    )

_CLASSES = frozenset(
    {
        "BestOverlapIoU",
        "CompletenessGap",
        "EnergyInside",
        "KeepAbsoluteMask",
        "KeepNegativeMask",
        "KeepPositiveMask",
        "MeanAbsoluteRelativeDifference",
        "PointingGame",
        "RemoveAbsoluteMask",
    }
)


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        from axiograd.metrics import metric_classes

        return getattr(metric_classes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
