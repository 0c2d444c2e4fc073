"""The chosen methods on one model, what a call of one costs, and the attributions of samples with their scores."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from axiograd._calls import class_scores
from axiograd._state import like_of
from axiograd.attribution import Attribution, Completeness, Gradient
from axiograd.attribution.methods import METHODS, find_method
from axiograd.cli.classes import ClassNames
from axiograd.cli.inputs import suggestion
from axiograd.cli.options import read_list
from axiograd.cli.samples import Samples
from axiograd.errors import ConfigurationError, NotHomogeneousError, TargetError
from axiograd.homogeneity import certify
from axiograd.homogeneity.conversion.lift import Lifted, energy_share

if TYPE_CHECKING:
    from axiograd.homogeneity import Certificate

#: Rows of inputs × steps that are in memory at once.
ROWS = 16


def read_methods(given: list[str] | None) -> list[str]:
    """The names of the methods, each once; X-Gradient where none is given.

    >>> read_methods(["x-gradient,integrated-gradients", "x-gradient"])
    ['x-gradient', 'integrated-gradients']
    """
    return list(dict.fromkeys(find_method(name).name for name in read_list(given) or ["x-gradient"]))


@dataclass
class MethodCost:
    """Passes that one sample took on average, and the seconds of all."""

    samples: int = 0
    forward: int = 0
    backward: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, float]:
        """For JSON and tables, per sample."""
        n = max(self.samples, 1)
        return {
            "forward_passes_per_sample": self.forward / n,
            "backward_passes_per_sample": self.backward / n,
            "seconds_per_sample": self.seconds / n,
            "seconds": self.seconds,
        }


class Counted(nn.Module):
    """The model, counting the samples that pass through it forwards and backwards.

    X-Gradient's checks along the path leave a module's attributes as they were, so they are not counted.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.forwards = self.backwards = 0
        self.training = model.training

    def forward(self, inputs: Tensor) -> Any:
        outputs = self.model(inputs)
        self.forwards += len(inputs)
        leaf = next((t for t in _leaves(outputs) if t.requires_grad), None)
        if leaf is not None:
            leaf.register_hook(lambda _: self._count(len(inputs)))
        return outputs

    def _count(self, rows: int) -> None:
        self.backwards += rows


def _leaves(outputs: Any) -> list[Tensor]:
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]


class Methods:
    """The chosen methods on one model; X-Gradient only if the model is certified."""

    def __init__(
        self, names: Sequence[str], model: nn.Module, call: Mapping[str, Any], *, steps: int = 128, seed: int = 0
    ) -> None:
        self.names, self.model, self.call, self.steps, self.seed = tuple(names), model, call, steps, seed
        self.spec = str(call["spec"])
        self.costs = {name: MethodCost() for name in names}
        self.references: Tensor | None = None
        self._warm = False
        self._certificates: dict[tuple[int, ...], Certificate] = {}
        self._made: dict[tuple[str, torch.Size], tuple[Counted, Attribution]] = {}

    def title(self, name: str) -> str:
        """As it is shown, with the number of steps where that matters."""
        return METHODS[name].titled(self.steps)

    def certificate(self, inputs: Tensor) -> Certificate:
        """The model's certificate for inputs of this shape."""
        shape = tuple(inputs.shape[1:])
        if shape not in self._certificates:
            self._certificates[shape] = certify(self.model, inputs)
        return self._certificates[shape]

    def attribute(self, name: str, inputs: Tensor, target: Any, *, first: int = 0) -> Tensor:
        """Attributions by one method; its passes and its time are added to its cost."""
        counted, method = self._made.get((name, inputs.shape[1:])) or self._make(name, inputs, first)
        cost = self.costs[name]
        if not self._warm:  # the first pass of a process allocates, and would be charged to the first method
            Gradient(self.model).attribute(inputs[:1], target if target is None else target[:1])
            self._warm = True
        start = time.perf_counter()
        found: Tensor = method.attribute(inputs, target)
        cost.seconds += time.perf_counter() - start
        cost.samples += len(inputs)
        cost.forward += counted.forwards
        cost.backward += counted.backwards
        counted.forwards = counted.backwards = 0
        return found

    def _make(self, name: str, inputs: Tensor, first: int) -> tuple[Counted, Attribution]:
        """The method on a model that counts; kept for inputs of this shape, but for one that draws."""
        entry, counted = METHODS[name], Counted(self.model)
        # What is drawn depends on the seed and the place of the batch alone, so that a resumed run draws the same.
        method = entry.build(
            counted,
            steps=self.steps,
            references=self._draw_from(inputs) if entry.needs_references else None,
            generator=torch.Generator().manual_seed(self.seed * 100_003 + first),
            internal_batch_size=ROWS,
            **({"degree": self._degree(inputs)} if entry.certified else {}),
        )
        if "generator" not in entry.settings:
            self._made[name, inputs.shape[1:]] = counted, method
        return counted, method

    def _draw_from(self, inputs: Tensor) -> Tensor:
        found = inputs if self.references is None else self.references
        if len(found) < 2:  # noqa: PLR2004  # a single one would be its own reference
            raise ConfigurationError("expected-gradients draws its references from the inputs: give at least two.")
        return found

    def _degree(self, inputs: Tensor) -> float:
        certificate = self.certificate(inputs)
        if certificate.ok and certificate.degree is not None:
            return certificate.degree
        first = certificate.violations[0]
        count = len(certificate.violations)
        raise NotHomogeneousError(
            f"X-Gradient is exact on X-DNNs only, and {self.spec} is not one: {count} "
            f"violation{'' if count == 1 else 's'}, the first in {first.module or 'the model'} ({first.reason}). "
            f"Either take another method, --method input-x-gradient (not exact) or integrated-gradients (slower), or "
            f"convert it: {suggestion(self.call, 'convert', inputs_as='--examples', out='FILE.safetensors')}. "
            f"`{suggestion(self.call, 'check', shape=','.join(map(str, inputs.shape[1:])))}` lists them."
        )


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


@dataclass(frozen=True)
class ScoredBatch:
    """Samples that go through the model together: what it says, what is attributed, and F(x) − F(0) of that."""

    places: list[int]
    inputs: Tensor
    scores: Tensor
    labels: list[int] | None
    targets: Tensor | None
    difference: Tensor


def scored(
    model: nn.Module,
    samples: Samples,
    *,
    target: str,
    batch: int,
    skip_damaged: bool,
    names: Callable[[int], ClassNames],
    start: int = 0,
    judged: bool = False,
) -> Iterator[ScoredBatch]:
    """Batch after batch; where labels are to judge by, they must be the model's classes, or there are none at all."""
    for places, x in samples.batches(batch, like_of(model), skip_damaged=skip_damaged, start=start):
        scores = scores_of(model, x)
        n = scores.shape[1]
        labels = labels_of(samples, places, n, names(n))
        if judged and labels is None and samples.labels is not None:
            raise ConfigurationError(
                f"{samples.source} has {len(samples.classes) or max(samples.labels) + 1} classes and the model {n} "
                "outputs, so which output is which class is unknown: give the model's class names by --classes FILE."
            )
        wish = "predicted" if judged and labels is None and target == "label" else target
        targets = targets_of(wish, scores, labels, names(n))
        zero = scores_of(model, torch.zeros_like(x[:1])).expand_as(scores)
        difference = (select(scores, targets) - select(zero, targets)).double()
        yield ScoredBatch(places, x, scores, labels, targets, difference)


def attribute(methods: Methods, samples: Samples, **how: Any) -> Iterator[AttributedSample]:
    """Attribute sample after sample, a batch at a time, as `scored` reads them."""
    model = methods.model
    for one in scored(model, samples, **how):
        x, targets = one.inputs, one.targets
        found = {name: methods.attribute(name, x, targets, first=one.places[0]) for name in methods.names}
        sums = {name: a.double().flatten(1).sum(1) for name, a in found.items() if METHODS[name].adds_up}
        energy = energy_share(model, x, targets) if isinstance(model, Lifted) else None
        for i, place in enumerate(one.places):
            yield AttributedSample(
                place,
                samples.names[place],
                x[i].cpu(),
                one.scores[i].cpu(),
                None if targets is None else int(targets[i]),
                None if one.labels is None else one.labels[i],
                {name: a[i].detach().cpu() for name, a in found.items()},
                float(one.difference[i]),
                {name: float(total[i] - one.difference[i]) for name, total in sums.items()},
                None if energy is None else float(energy[i]),
                samples.mask(place),
            )


def labels_of(samples: Samples, places: list[int], n_outputs: int, names: ClassNames) -> list[int] | None:
    """The model's class of each of these samples; None where the data has no labels, or none that can be matched."""
    if samples.labels is None:
        return None
    known = names.match(samples.labels, samples.classes, n_outputs)
    return None if known is None else [known[i] for i in places]


def scores_of(model: nn.Module, inputs: Tensor) -> Tensor:
    """One score per class, [samples, classes]; a single score for models that have one."""
    with torch.no_grad():
        return class_scores(model(inputs), len(inputs))


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
