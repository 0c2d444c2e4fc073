"""Distillation: give a converted model its accuracy back from the model that it was made of."""

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset, Subset

from axiograd._io import digest, model_settings, settings_of
from axiograd._state import in_mode, like_of
from axiograd.attribution import IntegratedGradients, XGradient
from axiograd.errors import ConfigurationError
from axiograd.priors import Matching
from axiograd.training.batches import ensure_dataset
from axiograd.training.fit import FitResult, fit
from axiograd.training.loss import AttributionLoss
from axiograd.training.mixup import MixedTarget, task_value
from axiograd.training.objective import Objective, call_model

#: With fewer samples than these, none are held out.
_FEW = 20
#: Samples by which agreement is measured, and the loss of it that is told.
_ASKED, _LOST = 64, 0.3


@dataclass(frozen=True)
class DistillationTerms:
    """total = (1 − labels)·imitation + labels·task."""

    total: Tensor
    imitation: Tensor
    task: Tensor
    outputs: Tensor


class Distillation(Objective):
    """(1 − w)·T²·KL(softmax(teacher / T) ‖ softmax(student / T)) + w·L(student, label).

    With `temperature=None`, for outputs that are not logits, the imitation is the mean squared difference.
    Hinton, Vinyals, Dean: Distilling the knowledge in a neural network, 2015.

    >>> teacher, student = nn.Linear(3, 2), nn.Linear(3, 2)
    >>> x = torch.randn(5, 3)
    >>> Distillation(teacher)(teacher, x, None).total.item()
    0.0
    >>> Distillation(teacher)(student, x, None).total.item() > 0
    True
    """

    def __init__(
        self,
        teacher: nn.Module,
        *,
        temperature: float | None = 2.0,
        labels: float = 0.0,
        task_loss: Callable[[Any, Any], Tensor] = F.cross_entropy,
    ) -> None:
        if not 0.0 <= labels <= 1.0:
            raise ConfigurationError(f"labels={labels} is the share of the label's loss; it must be between 0 and 1.")
        if temperature is not None and not temperature > 0:
            raise ConfigurationError(
                f"temperature={temperature}; it must be positive, or None for a squared difference."
            )
        self.teacher, self.temperature, self.labels = teacher, temperature, labels
        self._label_loss = task_loss
        self.task_loss = task_loss if labels else self.imitation

    def __call__(self, model: Callable[..., Any], inputs: Any, target: Any, **arguments: Any) -> DistillationTerms:
        if arguments:
            raise ConfigurationError(f"distillation has no prior to give {', '.join(arguments)} to.")
        outputs = call_model(model, inputs)
        imitation = self.imitation(outputs, self.teach(inputs))
        task = task_value(self._label_loss, outputs, target) if self.labels else torch.zeros_like(imitation)
        return DistillationTerms((1.0 - self.labels) * imitation + self.labels * task, imitation, task, outputs)

    def teach(self, inputs: Any) -> Tensor:
        """The teacher's outputs; it is in eval mode for them, and gets no gradients."""
        with in_mode(self.teacher, training=False), torch.no_grad():
            outputs: Tensor = call_model(self.teacher, inputs)
        return outputs

    def lesson(self, inputs: Any) -> tuple[Any, ...]:
        """What the teacher says of one sample: its outputs, as a target."""
        device = like_of(self.teacher).device
        return (self.teach(pytree.tree_map_only(Tensor, lambda part: part[None].to(device), inputs))[0].cpu(),)

    def imitation(self, outputs: Tensor, taught: Tensor | MixedTarget) -> Tensor:
        """How far the student's outputs are from the teacher's."""
        if not isinstance(taught, Tensor) or outputs.shape != taught.shape:
            shape = tuple(taught.shape) if isinstance(taught, Tensor) else type(taught).__name__
            raise ConfigurationError(
                f"student and teacher differ in their outputs: {tuple(outputs.shape)} and {shape}."
            )
        if self.temperature is None:
            return F.mse_loss(outputs, taught)
        if outputs.dim() == 1 or outputs.shape[1] == 1:
            raise ConfigurationError(
                f"outputs of shape {tuple(outputs.shape)} have one number per sample, whose softmax is 1 whatever it "
                "is: give temperature=None, and the squared difference is learned."
            )
        t = self.temperature
        student, teacher = F.log_softmax(outputs / t, 1), F.log_softmax(taught / t, 1)
        return t**2 * F.kl_div(student, teacher, reduction="batchmean", log_target=True)

    def identity(self) -> dict[str, Any]:
        """Whom it imitates, and how."""
        return {
            "teacher": model_settings(self.teacher),
            "temperature": self.temperature,
            "labels": self.labels,
            "task_loss": settings_of(self._label_loss) if self.labels else None,
        }

    def to(self, device: torch.device) -> None:
        """The teacher goes where the student is."""
        self.teacher.to(device)


@dataclass(frozen=True)
class TaughtAttributions:
    """What a student learns of its teacher's attributions: IG of its top class, summed over channels, pooled."""

    weight: float = 1.0
    #: Steps of the teacher's Integrated Gradients.
    steps: int = 64
    #: Windows of images over which attributions are averaged before they are compared; 1 compares pixels.
    window: int = 8
    distance: Literal["l2", "l1", "cosine"] = "cosine"

    def pooled(self, attributions: Tensor) -> Tensor:
        """[n, c, h, w] → [n, 1, h/window, w/window]; anything else as it is.

        >>> TaughtAttributions(window=2).pooled(torch.ones(1, 3, 4, 4)).flatten()
        tensor([3., 3., 3., 3.])
        """
        if attributions.dim() != 4:  # noqa: PLR2004  # images
            return attributions
        return F.avg_pool2d(attributions.sum(1, keepdim=True), self.window, ceil_mode=True)


@dataclass(frozen=True)
class ExplainedTerms:
    """total = imitation + weight·matching."""

    total: Tensor
    imitation: Tensor
    matching: Tensor
    outputs: Tensor


class ExplainedDistillation(Distillation):
    """Imitation + λ·d(X-Gradient of the student, Integrated Gradients of the teacher) for the teacher's top class.

    One backward pass of the student learns what takes the teacher `steps` of them.
    """

    def __init__(self, teacher: nn.Module, what: TaughtAttributions, *, temperature: float | None = 2.0) -> None:
        super().__init__(teacher, temperature=temperature)
        self.what, matching = what, Matching(what.distance)

        def prior(found: Tensor, *, maps: Tensor) -> Tensor:
            return matching(what.pooled(found), teacher=maps)

        # Without second derivatives where the student is piecewise linear and large enough for it to pay.
        self._loss = AttributionLoss(self.imitation, prior, what.weight, XGradient)

    def __call__(self, model: Callable[..., Any], inputs: Any, target: Any, **arguments: Any) -> Any:
        _require_tensor(inputs)
        terms = self._loss(model, inputs, self.teach(inputs), attribution_target=target, **arguments)
        return ExplainedTerms(terms.total, terms.task, terms.prior, terms.outputs)

    def identity(self) -> dict[str, Any]:
        """Whom it imitates, and how."""
        return super().identity() | {"attributions": asdict(self.what)}

    def lesson(self, inputs: Any) -> tuple[Any, ...]:
        """Its top class for one sample, and its pooled attributions as an argument of the prior."""
        _require_tensor(inputs)
        chosen = self.teach(inputs[None]).argmax(1)
        with in_mode(self.teacher, training=False):
            method = IntegratedGradients(self.teacher, self.what.steps, internal_batch_size=16)
            return int(chosen), {"maps": self.what.pooled(method.attribute(inputs[None], chosen))[0].detach()}


def _require_tensor(inputs: Any) -> None:
    if not isinstance(inputs, Tensor):
        raise ConfigurationError("attributions are taught to models of one input tensor.")


def distill(
    student: nn.Module,
    teacher: nn.Module,
    data: Any,
    *,
    labels: float = 0.0,
    temperature: float | None = 2.0,
    task_loss: Callable[[Any, Any], Tensor] = F.cross_entropy,
    validation: Any = None,
    held_out: float = 0.1,
    attributions: TaughtAttributions | None = None,
    **settings: Any,
) -> FitResult:
    """Train the student to answer as the teacher does; `settings` are those of `fit`.

    Without labels the data set may give inputs alone, and validation judges by the teacher's answers. Where there is
    none, a share of the data is `held_out` for it (of 20 samples or more). The student ends with the weights that were
    judged best, those that it began with among them.

    With `attributions`, its X-Gradient learns the teacher's Integrated Gradients too; then the last weights stay, as
    answers alone do not judge that, and a warning says if much of the answers went with it.

    >>> teacher, student = nn.Linear(3, 2, bias=False), nn.Linear(3, 2, bias=False)
    >>> from axiograd.training import Recipe
    >>> recipe = Recipe(optimizer="adam", schedule="cosine", lr=0.1, weight_decay=0.0, epochs=30, batch_size=32)
    >>> x = torch.randn(64, 3)
    >>> result = distill(student, teacher, x, recipe=recipe, accelerator="cpu")
    >>> result.history[-1]["imitation"] < 0.01 * result.history[0]["imitation"]
    True
    """
    if attributions is not None:
        if labels or validation is not None:
            raise ConfigurationError("attributions are taught without labels and without validation.")
        teaching = ExplainedDistillation(teacher, attributions, temperature=temperature)
        taught = Taught(data, teaching)
        before = _agreement(student, teaching, taught)
        result = fit(student, taught, loss=teaching, **settings)
        _tell_losses(before, _agreement(student, teaching, taught))
        return result
    objective = Distillation(teacher, temperature=temperature, labels=labels, task_loss=task_loss)
    settings = {"judge_start": True, **settings}
    if labels:
        return fit(student, data, loss=objective, validation=validation, **settings)
    if validation is None:
        data, validation = _parted(data, held_out)
    judged = None if validation is None else Taught(validation, objective)
    return fit(student, _Unlabelled(data), loss=objective, validation=judged, **settings)


@torch.no_grad()
def _agreement(student: nn.Module, teaching: ExplainedDistillation, data: "_Unlabelled") -> float:
    """On which share of some samples the student's top class is its teacher's; 1 where that cannot be asked."""
    asked = torch.linspace(0, len(data) - 1, min(len(data), _ASKED)).round().int().tolist()
    inputs = [_Unlabelled.__getitem__(data, place)[0] for place in asked]
    if teaching.temperature is None or not inputs or not all(isinstance(one, Tensor) for one in inputs):
        return 1.0  # outputs are not classes, or the training itself says what is wrong
    with in_mode(student, training=False), in_mode(teaching.teacher, training=False):
        same = [_top(student, one) == _top(teaching.teacher, one) for one in inputs]
    return sum(same) / len(same)


def _top(model: nn.Module, sample: Tensor) -> int:
    outputs: Tensor = call_model(model, sample[None].to(like_of(model).device))
    return int(outputs.argmax(1))


def _tell_losses(before: float, after: float) -> None:
    if after < before - _LOST:
        warnings.warn(
            f"the student has its teacher's top class on {after:.0%} of the samples, {before:.0%} before: learning the "
            "attributions cost it answers; use a lower rate (recipe.lr) or weight (TaughtAttributions.weight).",
            UserWarning,
            stacklevel=3,
        )


def _parted(data: Any, held_out: float) -> tuple[Any, Any]:
    """Samples to learn from, and every n-th to judge by."""
    if not 0 <= held_out < 1:
        raise ConfigurationError(f"held_out={held_out}; it is a share of the samples, at least 0 and below 1.")
    whole = data if isinstance(data, Tensor) else ensure_dataset(data, "data")
    if not held_out or len(whole) < _FEW:
        return data, None
    step = max(2, round(1 / held_out))
    judging = range(step - 1, len(whole), step)
    others = [i for i in range(len(whole)) if i % step != step - 1]
    if isinstance(whole, Tensor):
        return whole[others], whole[list(judging)]
    return Subset(whole, others), Subset(whole, judging)


class _Unlabelled(Dataset[Any]):
    """The inputs of a data set with or without labels, and 0 for a target that nobody looks at."""

    def __init__(self, data: Any) -> None:
        self.data = data if isinstance(data, Tensor) else ensure_dataset(data, "data")

    def __len__(self) -> int:
        return len(self.data)

    def set_epoch(self, epoch: int) -> None:
        """For data sets that draw by the epoch."""
        if hasattr(self.data, "set_epoch"):
            self.data.set_epoch(epoch)

    def __getitem__(self, index: int) -> Any:
        item = self.data[index]
        return (item["inputs"] if isinstance(item, dict) else item[0] if isinstance(item, tuple) else item), 0


class Taught(_Unlabelled):
    """The inputs, with what the teacher says of them: it is asked again only where a sample is drawn anew."""

    def __init__(self, data: Any, objective: Distillation) -> None:
        super().__init__(data)
        self._lesson = objective.lesson
        self._known: dict[int, tuple[str, tuple[Any, ...]]] = {}

    def __getitem__(self, index: int) -> Any:
        inputs, _ = _Unlabelled.__getitem__(self, index)
        seen = digest(*(part for part in pytree.tree_leaves(inputs) if isinstance(part, Tensor)))
        if index not in self._known or self._known[index][0] != seen:
            self._known[index] = seen, self._lesson(inputs)
        return inputs, *self._known[index][1]
