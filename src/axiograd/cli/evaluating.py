"""Measurements on many samples, written after every batch, so that a run resumes where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from axiograd._io import require_same_settings, write_atomically
from axiograd.attribution.methods import METHODS
from axiograd.cli.attributing import Methods, scored
from axiograd.cli.classes import ClassNames
from axiograd.cli.samples import Samples
from axiograd.errors import StorageError
from axiograd.metrics import Blur, best_overlap, energy_inside, masking_curves, pointing_game
from axiograd.metrics.masking import MaskingValue

MASKING = ("KPM", "KNM", "KAM", "RAM")
LOCALISATION = ("energy inside", "pointing game", "best IoU")
_TOP = 5
_IMAGES = 4

Values = dict[str, list[float]]


@dataclass
class Measured:
    """One number per sample: of the model, and of each method."""

    identity: dict[str, Any]
    done: int = 0
    model: Values = field(default_factory=dict)
    methods: dict[str, Values] = field(default_factory=dict)

    @classmethod
    def resume(cls, path: Path | None, identity: dict[str, Any]) -> Measured:
        """What a file holds of the same run; a file of another one is not overwritten."""
        if path is None or not path.exists():
            return cls(identity)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            found = cls(content["identity"], int(content["done"]), dict(content["model"]), dict(content["methods"]))
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"{path} is not a file of `axiograd evaluate`: {error}; choose another one.") from error
        require_same_settings(path, found.identity, identity, "Choose another -o file.")
        return found

    def save(self, path: Path | None) -> None:
        """Write everything, atomically."""
        if path is not None:
            content = {"identity": self.identity, "done": self.done, "model": self.model, "methods": self.methods}
            write_atomically(path, (json.dumps(content) + "\n").encode())

    def add(self, method: str | None, values: dict[str, Tensor]) -> None:
        """Numbers of a batch, one per sample."""
        into = self.model if method is None else self.methods.setdefault(method, {})
        for name, numbers in values.items():
            into.setdefault(name, []).extend(float(number) for number in numbers)


def measure(
    methods: Methods,
    samples: Samples,
    measured: Measured,
    *,
    wanted: set[str],
    masking: str,
    target: str,
    batch: int,
    skip_damaged: bool,
    names: Callable[[int], ClassNames],
    out: Path | None,
    progress: Callable[[int], object],
) -> Measured:
    """Add to what is measured until all samples are done."""
    model = methods.model
    how: dict[str, Any] = {"target": target, "batch": batch, "skip_damaged": skip_damaged, "names": names}
    for one in scored(model, samples, start=measured.done, judged=True, **how):
        x, labels, targets = one.inputs, one.labels, one.targets
        if "accuracy" in wanted and labels is not None:
            measured.add(None, _accuracy(one.scores, torch.tensor(labels)))
        measured.add(None, {"difference": one.difference})
        seen, regions = _regions(samples, one.places) if "localisation" in wanted else ([], None)
        for name in methods.names:
            spent = methods.costs[name].seconds
            attribution = methods.attribute(name, x, targets, first=one.places[0])
            seconds = (methods.costs[name].seconds - spent) / len(x)
            values = {"seconds": torch.full((len(x),), seconds)}
            if "completeness" in wanted and METHODS[name].adds_up:
                values["delta"] = attribution.double().flatten(1).sum(1) - one.difference
            if "masking" in wanted:
                right = targets if labels is None else torch.tensor(labels, device=x.device)
                background = _background(masking, x)
                curves = masking_curves(model, x, attribution, targets, labels=right, masking=background)
                values |= {metric: curves[metric].areas for metric in curves}
            if regions is not None:
                values |= _localisation(attribution[seen], regions)
            measured.add(name, values)
        measured.done = one.places[-1] + 1
        measured.save(out)
        progress(measured.done)
    return measured


def _background(masking: str, inputs: Tensor) -> MaskingValue:
    """What masked features become: by default a blur, and the mean where images are too small to be blurred so."""
    if masking == "blur":
        return Blur()
    if masking != "auto":
        return "mean" if masking == "mean" else "zero"
    small = inputs.dim() == _IMAGES and min(inputs.shape[-2:]) <= Blur().kernel_size // 2
    return "mean" if small else None


def _regions(samples: Samples, places: list[int]) -> tuple[list[int], Tensor | None]:
    """Which samples of a batch have a region, and their boxes or masks."""
    if samples.masks is None:
        return list(range(len(places))), None if samples.boxes is None else samples.boxes[places]
    masks = [samples.mask(place) for place in places]
    known = {i: mask for i, mask in enumerate(masks) if mask is not None and bool(mask.any())}
    return list(known), torch.stack(list(known.values())) if known else None


def _accuracy(scores: Tensor, labels: Tensor) -> dict[str, Tensor]:
    if scores.shape[1] == 1:
        return {"top-1": 100.0 * ((scores[:, 0] > 0).long().cpu() == labels)}
    ranked = scores.topk(min(_TOP, scores.shape[1]), 1).indices.cpu() == labels[:, None]
    found = {"top-1": 100.0 * ranked[:, 0]}
    return found | ({"top-5": 100.0 * ranked.any(1)} if scores.shape[1] > _TOP else {})


def _localisation(attribution: Tensor, regions: Tensor) -> dict[str, Tensor]:
    overlap = best_overlap(attribution, regions).iou
    inside = energy_inside(attribution, regions), pointing_game(attribution, regions).double()
    return dict(zip(LOCALISATION, (*inside, overlap), strict=True))


def summary(values: list[float]) -> dict[str, float]:
    """The mean and its standard error."""
    numbers = torch.tensor(values, dtype=torch.float64)
    error = float(numbers.std() / len(numbers) ** 0.5) if len(numbers) > 1 else float("nan")
    return {"mean": float(numbers.mean()), "standard_error": error}
