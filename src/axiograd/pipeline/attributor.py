"""The chosen methods on one model: batch after batch, scores, attributions, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from axiograd._calls import class_scores
from axiograd._state import like_of
from axiograd.attribution import Attribution, XGradient, choose_method
from axiograd.attribution.methods import METHODS, find_method
from axiograd.errors import ConfigurationError, InputError, TargetError
from axiograd.homogeneity import Certificate
from axiograd.homogeneity.conversion.lift import Lifted, energy_share
from axiograd.loading import Loaded
from axiograd.pipeline.classes import ClassNames
from axiograd.pipeline.samples import Samples

#: Rows of inputs × steps that are in memory at once, and samples that references are drawn from.
_ROWS, _REFERENCES = 16, 64


@dataclass(frozen=True)
class Batch:
    """Samples that went through the model together."""

    places: list[int]
    names: list[str]
    inputs: Tensor
    #: One score per class, [samples, classes].
    scores: Tensor
    #: The model's classes of the samples, where those are known; and what was attributed, None for a single score.
    labels: list[int] | None
    targets: Tensor | None
    #: F(x) − F(0), and by each method's name its attributions.
    difference: Tensor
    attributions: dict[str, Tensor]
    #: Of images: true inside.
    masks: list[Tensor | None]
    #: Of a lifted network: the share of each score that is an energy map.
    energy: Tensor | None = None

    def sums_minus_difference(self, name: str) -> Tensor | None:
        """Σ A − (F(x) − F(0)) per sample; None for a method that does not claim to add up."""
        if not METHODS[name].adds_up or name == "held-gradient":  # which adds up with its constants alone
            return None
        return self.attributions[name].double().flatten(1).sum(1).cpu() - self.difference.cpu()


@dataclass
class Attributor:
    """Methods by name on a loaded model; without a name, the one that suits the model.

    >>> from axiograd import load
    >>> from axiograd.datasets import TensorData
    >>> from axiograd.pipeline.samples import tensor_samples
    >>> loaded = load("xmlp", settings={"in_channels": 4, "hidden": (8,), "num_classes": 2})
    >>> samples = tensor_samples(TensorData(torch.randn(6, 4), torch.zeros(6).long(), name="noise"), loaded)
    >>> [batch.attributions["x-gradient"].shape for batch in Attributor(loaded).batches(samples, 4)]
    [torch.Size([4, 4]), torch.Size([2, 4])]
    """

    loaded: Loaded
    methods: Sequence[str] = ()
    #: predicted, label, known (the label where there is one), or a class by number or name.
    target: str = "predicted"
    steps: int = 128
    #: Why the method was chosen, where none was named.
    reason: str | None = None
    certificate: Certificate | None = None
    #: Samples that could not be read, by name, and why.
    left_out: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    count: int = 0
    _made: dict[tuple[str, torch.Size], Attribution] = field(default_factory=dict, repr=False)
    _references: Tensor | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.methods = tuple(dict.fromkeys(find_method(name).name for name in self.methods))

    def title(self, name: str) -> str:
        """As it is shown, with the number of steps where that matters."""
        return METHODS[name].titled(self.steps)

    def seconds_per_sample(self, name: str) -> float:
        """Of the attributions alone: proofs, and what the model says by itself, are not in it."""
        return self.seconds.get(name, 0.0) / max(self.count, 1)

    def batches(self, samples: Samples, size: int = 8) -> Iterator[Batch]:
        """Attribute all samples; nothing is kept but their number and the time that each method took."""
        like, names = like_of(self.loaded.model), ClassNames()
        if any(METHODS[name].needs_references for name in self.methods):
            self._references = next((x for _, x, _ in samples.batches(_REFERENCES, like, {})), None)
        matched: list[int] | None = None
        for number, (places, x, masks) in enumerate(samples.batches(size, like, self.left_out)):
            scores = self._scores(x)
            n = scores.shape[1]
            if number == 0:
                names, matched = samples.class_names(self.loaded, n), samples.labels_of(self.loaded, n)
            labels = None if matched is None else [matched[place] for place in places]
            targets = self._targets(scores, labels, names)
            zero = self._scores(torch.zeros_like(x[:1])).expand_as(scores)
            if not self.methods:
                chosen, self.reason = choose_method(self.loaded.model, x)
                self.methods = (find_method(chosen.__name__).name,)
            found = {name: self._attribute(name, x, targets, places[0]) for name in self.methods}
            self.count += len(x)
            yield Batch(
                places,
                [samples.source.names[place] for place in places],
                x,
                scores,
                labels,
                targets,
                (_select(scores, targets) - _select(zero, targets)).double(),
                found,
                masks,
                energy_share(self.loaded.model, x, targets) if isinstance(self.loaded.model, Lifted) else None,
            )
        if not self.count:
            reason = next(iter(self.left_out.values()), "it is empty")
            raise InputError(f"{samples.source.name}: no sample can be read; {reason.rstrip('.')}.")

    def _scores(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return class_scores(self.loaded.model(inputs), len(inputs))

    def _attribute(self, name: str, x: Tensor, targets: Tensor | None, first: int) -> Tensor:
        method = self._made.get((name, x.shape[1:])) or self._make(name, x, targets, first)
        start = time.perf_counter()
        found: Tensor = method.attribute(x, targets).detach()
        if found.is_cuda:
            torch.cuda.synchronize(found.device)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        return found

    def _make(self, name: str, x: Tensor, targets: Tensor | None, first: int) -> Attribution:
        entry = METHODS[name]
        if entry.needs_references and (self._references is None or len(self._references) < 2):  # noqa: PLR2004
            raise ConfigurationError(f"{entry.title} draws its references from the inputs: give at least two.")
        method = entry.build(
            self.loaded.model,
            steps=self.steps,
            references=self._references if entry.needs_references else None,
            generator=torch.Generator().manual_seed(first),
            internal_batch_size=_ROWS,
        )
        if isinstance(method, XGradient):
            try:
                method.attribute(x, targets)  # so that the proof is in no sample's time
            finally:
                self.certificate = method.certificate
        if "generator" not in entry.settings:
            self._made[name, x.shape[1:]] = method
        return method

    def _targets(self, scores: Tensor, labels: list[int] | None, names: ClassNames) -> Tensor | None:
        """What is attributed, per sample; None for a single score."""
        n = scores.shape[1]
        if self.target == "predicted" or (self.target == "known" and labels is None):
            return None if n == 1 else scores.argmax(1)
        if self.target in {"label", "known"}:
            if labels is None:
                raise TargetError(
                    "--target label: the data has no labels, or none that are the model's classes; use predicted or a "
                    "class's number."
                )
            found = torch.tensor(labels, device=scores.device)
        else:
            found = torch.full((len(scores),), names.index(self.target), device=scores.device)
        if n == 1:
            return None
        if int(found.min()) < 0 or int(found.max()) >= n:
            raise TargetError(f"--target {self.target}: class {int(found.max())} of a model with classes 0 to {n - 1}.")
        return found


def _select(scores: Tensor, targets: Tensor | None) -> Tensor:
    return scores[:, 0] if targets is None else scores.gather(1, targets[:, None])[:, 0]
