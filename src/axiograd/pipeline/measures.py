"""Numbers of a data set: accuracy of the model, completeness, masking curves and localisation of its attributions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from axiograd._names import choose_from
from axiograd.errors import ConfigurationError
from axiograd.metrics import Blur, best_overlap, energy_inside, masking_curves, pointing_game
from axiograd.pipeline.attributor import Attributor, Batch
from axiograd.pipeline.results import relative

Metric = Literal["accuracy", "completeness", "masking", "localisation"]
METRICS: tuple[Metric, ...] = get_args(Metric)
_TOP = 5
_IMAGES = 4


@dataclass
class Measures:
    """A sink of batches that keeps one number per sample and metric.

    KPM and KNM are areas under the target's score, KAM and RAM under the accuracy, while features are masked in the
    order of their attributions (the paper's Table 3).
    """

    attributor: Attributor
    wanted: tuple[str, ...] = METRICS
    model: dict[str, list[float]] = field(default_factory=dict)
    methods: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if unknown := [name for name in self.wanted if name not in METRICS]:
            raise ConfigurationError(f"--metrics {unknown[0]}: {choose_from(unknown[0], METRICS)}.")

    def add(self, batch: Batch) -> None:
        """Measure a batch."""
        _extend(self.model, {"difference": batch.difference})
        labels = None if batch.labels is None else torch.tensor(batch.labels)
        if "accuracy" in self.wanted and labels is not None:
            _extend(self.model, _accuracy(batch.scores.cpu(), labels))
        seen = [i for i, mask in enumerate(batch.masks) if mask is not None and bool(mask.any())]
        for name, found in batch.attributions.items():
            values: dict[str, Tensor] = {}
            delta = batch.sums_minus_difference(name)
            if "completeness" in self.wanted and delta is not None:
                values["delta"] = delta
            if "masking" in self.wanted:
                values |= self._masked(batch, found, labels)
            if "localisation" in self.wanted and seen:
                regions = torch.stack([batch.masks[i] for i in seen])  # type: ignore[misc]
                values |= _localised(found[seen].cpu(), regions)
            _extend(self.methods.setdefault(name, {}), values)

    def _masked(self, batch: Batch, found: Tensor, labels: Tensor | None) -> dict[str, Tensor]:
        """By default against a blur, and the mean where inputs are too small to be blurred so."""
        x, model = batch.inputs, self.attributor.loaded.model
        small = x.dim() == _IMAGES and min(x.shape[-2:]) <= Blur().kernel_size // 2
        right = batch.targets if labels is None else labels.to(x.device)
        curves = masking_curves(model, x, found, batch.targets, labels=right, masking="mean" if small else None)
        return {metric: curve.areas for metric, curve in curves.items()}

    def answer(self) -> dict[str, Any]:
        """Means and standard errors over samples."""
        differences = self.model["difference"]
        rows = []
        for name, values in self.methods.items():
            row: dict[str, Any] = {"method": self.attributor.title(name)}
            row["seconds_per_sample"] = self.attributor.seconds_per_sample(name)
            if "delta" in values:
                errors = [error or 0.0 for error in relative(values["delta"], differences)]
                row["completeness_error"] = {"mean": _summary(errors)["mean"], "max": max(errors)}
            rows.append(row | {key: _summary(each) for key, each in values.items() if key != "delta"})
        return {
            "n_samples": len(differences),
            "n_regions": max((len(values.get("energy inside", ())) for values in self.methods.values()), default=0),
            "accuracy_percent": {k: _summary(self.model[k]) for k in ("top-1", "top-5") if k in self.model},
            "results": rows,
        }


def _extend(into: dict[str, list[float]], values: dict[str, Tensor]) -> None:
    for name, numbers in values.items():
        into.setdefault(name, []).extend(float(number) for number in numbers)


def _accuracy(scores: Tensor, labels: Tensor) -> dict[str, Tensor]:
    if scores.shape[1] == 1:
        return {"top-1": 100.0 * ((scores[:, 0] > 0).long() == labels)}
    ranked = scores.topk(min(_TOP, scores.shape[1]), 1).indices == labels[:, None]
    found = {"top-1": 100.0 * ranked[:, 0]}
    return found | ({"top-5": 100.0 * ranked.any(1)} if scores.shape[1] > _TOP else {})


def _localised(attribution: Tensor, regions: Tensor) -> dict[str, Tensor]:
    return {
        "energy inside": energy_inside(attribution, regions),
        "pointing game": pointing_game(attribution, regions).double(),
        "best IoU": best_overlap(attribution, regions).iou,
    }


def _summary(values: list[float]) -> dict[str, float]:
    """The mean and its standard error."""
    numbers = torch.tensor(values, dtype=torch.float64)
    error = float(numbers.std() / len(numbers) ** 0.5) if len(numbers) > 1 else float("nan")
    return {"mean": float(numbers.mean()), "standard_error": error}
