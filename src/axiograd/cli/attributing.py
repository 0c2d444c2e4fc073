"""Attributions of samples by several methods, with scores, targets and completeness."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from axiograd._target import logits
from axiograd.attribution import Completeness
from axiograd.attribution.methods import METHODS
from axiograd.cli.classes import ClassNames
from axiograd.cli.methods import Methods
from axiograd.cli.samples import Samples
from axiograd.errors import ConfigurationError, TargetError
from axiograd.homogeneity.conversion.lift import Lifted, energy_share
from axiograd.homogeneity.model import like_of

_SCORES = 2


@dataclass(frozen=True)
class AttributedSample:
    """One sample: its scores, what was attributed, and each method's attribution."""

    place: int
    name: str
    inputs: Tensor
    scores: Tensor
    target: int | None
    label: int | None
    attributions: dict[str, Tensor]
    #: F(x) − F(0), and for methods that attribute against zero how far their sum is from it.
    difference: float
    deltas: dict[str, float] = field(default_factory=dict)
    #: Of a lifted network: the share of the score that is an energy map.
    energy: float | None = None
    #: Of an image with a mask: true inside.
    mask: Tensor | None = None

    @property
    def predicted(self) -> int:
        """The class with the largest score; of a single score, whether it is positive."""
        return int(self.scores.argmax()) if len(self.scores) > 1 else int(self.scores[0] > 0)

    def top(self, n: int) -> list[int]:
        """The n classes with the largest scores."""
        return [int(i) for i in self.scores.topk(min(n, len(self.scores))).indices]


def attribute(
    methods: Methods,
    samples: Samples,
    *,
    target: str,
    batch: int,
    skip_damaged: bool,
    names: Callable[[int], ClassNames],
    progress: Callable[[int], object] = lambda _: None,
) -> Iterator[AttributedSample]:
    """Attribute sample after sample, a batch at a time."""
    model = methods.model
    for places, x in samples.batches(batch, like_of(model), skip_damaged=skip_damaged):
        scores = scores_of(model, x)
        labels = labels_of(samples, places, scores.shape[1], names(scores.shape[1]))
        targets = targets_of(target, scores, labels, names(scores.shape[1]))
        chosen = select(scores, targets)
        at_zero = select(scores_of(model, torch.zeros_like(x[:1])).expand_as(scores), targets)
        difference = (chosen - at_zero).double()
        found = {name: methods.attribute(name, x, targets, first=places[0]) for name in methods.names}
        sums = {name: a.double().flatten(1).sum(1) for name, a in found.items() if METHODS[name].adds_up}
        energy = energy_share(model, x, targets) if isinstance(model, Lifted) else None
        for i, place in enumerate(places):
            yield AttributedSample(
                place,
                samples.names[place],
                x[i].cpu(),
                scores[i].cpu(),
                None if targets is None else int(targets[i]),
                None if labels is None else labels[i],
                {name: a[i].detach().cpu() for name, a in found.items()},
                float(difference[i]),
                {name: float(total[i] - difference[i]) for name, total in sums.items()},
                None if energy is None else float(energy[i]),
                samples.mask(place),
            )
            progress(place)


def labels_of(samples: Samples, places: list[int], n_outputs: int, names: ClassNames) -> list[int] | None:
    """The model's class of each of these samples; None where the data has no labels, or none that can be matched."""
    if samples.labels is None:
        return None
    known = names.match(samples.labels, samples.classes, n_outputs)
    return None if known is None else [known[i] for i in places]


def scores_of(model: nn.Module, inputs: Tensor) -> Tensor:
    """One score per class, [samples, classes]; a single score for models that have one."""
    with torch.no_grad():
        raw = logits(model(inputs))
    if raw.dim() == 1:
        raw = raw.unsqueeze(1)
    if raw.dim() != _SCORES or len(raw) != len(inputs):
        raise ConfigurationError(
            f"the model gives outputs of shape {tuple(raw.shape)} for {len(inputs)} samples; the command explains one "
            "score, or one per class. In Python, target= takes any function of the outputs."
        )
    return raw


def targets_of(target: str, scores: Tensor, labels: list[int] | None, names: ClassNames) -> Tensor | None:
    """What is attributed: the predicted class, the label, or a class by number or name; None for a single score."""
    n = scores.shape[1]
    if target == "predicted":
        return None if n == 1 else scores.argmax(1)
    if target == "label":
        if labels is None:
            raise TargetError(
                "--target label: the data has no labels, or none that are the model's classes (--classes FILE names "
                "those); use --target predicted or a class's number."
            )
        found = torch.tensor(labels, device=scores.device)
    else:
        found = torch.full((len(scores),), names.index(target), device=scores.device)
    if n == 1:
        return None
    if int(found.min()) < 0 or int(found.max()) >= n:
        raise TargetError(f"--target {target}: class {int(found.max())} of a model with classes 0 to {n - 1}.")
    return found


def select(scores: Tensor, targets: Tensor | None) -> Tensor:
    """Each sample's score of its target."""
    return scores[:, 0] if targets is None else scores.gather(1, targets[:, None])[:, 0]


def relative(deltas: Sequence[float], differences: Sequence[float]) -> list[float | None]:
    """|Σ A − (F(x) − F(0))| per sample, relative to the root mean square of F(x) − F(0) over all that are given."""
    numbers = [torch.tensor(each, dtype=torch.float64) for each in (deltas, differences)]
    found = Completeness.of(numbers[0], numbers[1], "zero").relative.tolist()
    return [None if math.isnan(value) else value for value in found]


def describe(found: AttributedSample, names: Any, top: int) -> list[dict[str, Any]]:
    """The top classes of a sample for JSON; a single score stands alone."""
    if len(found.scores) == 1:
        return [{"score": float(found.scores[0])}]
    probabilities = found.scores.double().softmax(0)
    return [
        {"class": i, "name": names[i], "score": float(found.scores[i]), "probability": float(probabilities[i])}
        for i in found.top(top)
    ]
