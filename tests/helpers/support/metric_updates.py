"""Updates of every metric class on one rank's share of the samples."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from axiograd import metrics
from support.two_ranks import N_RANKS

N_SAMPLES = 7  # odd: the ranks do not get equally many


def everything(rank: int) -> dict[str, Any]:
    """What each class computes on one rank after it has seen only that rank's samples."""
    return computed(slice(rank, None, N_RANKS), batch=2)


def computed(share: slice, batch: int) -> dict[str, Any]:
    """What each class computes from a share of the samples, batch by batch."""
    generator = torch.Generator().manual_seed(0)
    x, a, ig = torch.randn(3, N_SAMPLES, 2, 6, 5, dtype=torch.float64, generator=generator)
    boxes = torch.tensor([[0, 1, 3, 4]]).repeat(N_SAMPLES, 1)
    labels = torch.arange(N_SAMPLES) % 3
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(60, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    masks = [
        metrics.KeepPositiveMask(masking="zero"),
        metrics.KeepNegativeMask(masking="mean"),
        metrics.KeepAbsoluteMask(masking="zero"),
        metrics.RemoveAbsoluteMask(masking=metrics.Blur(3, 1.0)),
    ]
    regions = [metrics.EnergyInside(), metrics.PointingGame(tolerance=1), metrics.BestOverlapIoU()]
    gap, difference = metrics.CompletenessGap(), metrics.MeanAbsoluteRelativeDifference(threshold=0.1)
    samples = torch.arange(N_SAMPLES)[share]
    for chosen in samples.split(batch):
        for mask in masks:
            mask.update(model, x[chosen], a[chosen], labels[chosen])
        for region in regions:
            region.update(a[chosen], boxes[chosen])
        gap.update(model, x[chosen], a[chosen], labels[chosen])
        difference.update(a[chosen], ig[chosen])
    found: dict[str, Any] = {}
    for metric in (*masks, *regions, gap, difference):
        summary = metric.summary()
        name = type(metric).__name__
        found[name] = [float(metric.compute()), float(summary.standard_error), summary.n_samples]
    found["curve"] = masks[0].curve()
    found["excluded"] = float(difference.excluded_fraction())
    return found
