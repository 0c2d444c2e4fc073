"""Distillation: give a converted model its accuracy back from the model that it was made of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves
from torch.utils.data import Dataset, TensorDataset, random_split

from axiograd._state import in_mode, like_of
from axiograd.attribution import IntegratedGradients
from axiograd.errors import ConfigurationError
from axiograd.priors import Matching
from axiograd.training.data import ensure_dataset
from axiograd.training.fit import FitResult, fit
from axiograd.training.loss import AttributionLoss
from axiograd.training.objective import Objective, call_model

#: With fewer samples than these, none are held out.
_FEW = 20


@dataclass(frozen=True)
class TaughtAttributions:
    """What a student learns of its teacher's attributions: IG of its top class, summed over channels, pooled."""

    weight: float = 1.0
    #: Steps of the teacher's Integrated Gradients.
    steps: int = 64
    #: Windows of images over which attributions are averaged before they are compared; 1 compares pixels.
    window: int = 8
    distance: Literal["l2", "l1", "cosine"] = "cosine"

    def of(self, teacher: nn.Module, inputs: Tensor, target: Tensor) -> Tensor:
        """What a teacher in eval mode attributes to one batch."""
        with in_mode(teacher, training=False):
            method = IntegratedGradients(teacher, self.steps, internal_batch_size=16)
            return self.pooled(method.attribute(inputs, target)).detach()

    def pooled(self, attributions: Tensor) -> Tensor:
        """[n, c, h, w] → [n, 1, h/window, w/window]; anything else as it is.

        >>> TaughtAttributions(window=2).pooled(torch.ones(1, 3, 4, 4)).flatten()
        tensor([3., 3., 3., 3.])
        """
        if attributions.dim() != 4:  # noqa: PLR2004  # images
            return attributions
        return F.avg_pool2d(attributions.sum(1, keepdim=True), self.window, ceil_mode=True)


@dataclass(frozen=True)
class DistillationTerms:
    """total = (1 − labels)·imitation + labels·task + weight·matching, the last if attributions are taught."""

    total: Tensor
    imitation: Tensor
    outputs: Tensor
    task: Tensor | None = None
    matching: Tensor | None = None


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
        task_loss: Callable[..., Tensor] = F.cross_entropy,
        attributions: TaughtAttributions | None = None,
    ) -> None:
        super().__init__()
        self._teacher = (teacher,)  # in a tuple: it is neither trained nor saved with the student
        self.temperature, self.labels, self.attributions = temperature, labels, attributions
        self.task_loss = task_loss if labels else self.imitation
        if attributions is not None:
            matching = Matching(attributions.distance)
            prior = lambda found, *, maps: matching(attributions.pooled(found), teacher=maps)  # noqa: E731
            self._explained = AttributionLoss(self.imitation, prior, attributions.weight)

    def forward(self, model: Callable[..., Any], inputs: Any, target: Any) -> DistillationTerms:  # type: ignore[override]
        """The terms of one batch."""
        if self.attributions is not None and not isinstance(inputs, Tensor):
            raise ConfigurationError("attributions are taught to models of one input tensor.")
        taught = self.teach(inputs)
        if self.attributions is not None:
            top = taught.argmax(1)
            maps = self.attributions.of(self._teacher[0], inputs, top)
            terms = self._explained(model, inputs, taught, attribution_target=top, maps=maps)
            return DistillationTerms(terms.total, terms.task, terms.outputs, matching=terms.prior)
        outputs = call_model(model, inputs)
        imitation = self.imitation(outputs, taught)
        if not self.labels:
            return DistillationTerms(imitation, imitation, outputs)
        task = self.task_loss(outputs, target)
        return DistillationTerms((1 - self.labels) * imitation + self.labels * task, imitation, outputs, task)

    def teach(self, inputs: Any) -> Tensor:
        """The teacher's outputs; it is in eval mode and where the inputs are for them, and gets no gradients."""
        teacher = self._teacher[0].to(next(part.device for part in tree_leaves(inputs) if isinstance(part, Tensor)))
        with in_mode(teacher, training=False), torch.no_grad():
            outputs: Tensor = call_model(teacher, inputs)
        return outputs

    def validation_target(self, inputs: Any, target: Any) -> Any:
        """The labels if they count, else the teacher's outputs."""
        return target if self.labels else self.teach(inputs)

    def imitation(self, outputs: Tensor, taught: Tensor) -> Tensor:
        """How far the student's outputs are from the teacher's."""
        if outputs.shape != taught.shape:
            raise ConfigurationError(
                f"student and teacher differ in their outputs: {tuple(outputs.shape)} and {tuple(taught.shape)}."
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


def distill(
    student: nn.Module,
    teacher: nn.Module,
    data: Any,
    *,
    labels: float = 0.0,
    temperature: float | None = 2.0,
    task_loss: Callable[..., Tensor] = F.cross_entropy,
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
    answers alone do not judge that.

    >>> teacher, student = nn.Linear(3, 2, bias=False), nn.Linear(3, 2, bias=False)
    >>> from axiograd.training import Recipe
    >>> recipe = Recipe(optimizer="adam", schedule="cosine", lr=0.1, weight_decay=0.0, epochs=30, batch_size=32)
    >>> result = distill(student, teacher, torch.randn(64, 3), recipe=recipe, accelerator="cpu")
    >>> result.history[-1]["imitation"] < 0.01 * result.history[0]["imitation"]
    True
    """
    if attributions is not None and (labels or validation is not None):
        raise ConfigurationError("attributions are taught without labels and without validation.")
    objective = Distillation(
        teacher, temperature=temperature, labels=labels, task_loss=task_loss, attributions=attributions
    )
    if not labels:
        data, validation = _Unlabelled(data), None if validation is None else _Unlabelled(validation)
        if validation is None and attributions is None and held_out and len(data) >= _FEW:
            chance = torch.Generator().manual_seed(settings.get("seed", 0))
            data, validation = random_split(data, [1 - held_out, held_out], chance)
    home = like_of(teacher).device
    try:
        return fit(student, data, objective, validation=validation, **{"judge_start": True, **settings})
    finally:
        teacher.to(home)


class _Unlabelled(Dataset[Any]):
    """The inputs of a data set with or without labels, and 0 for a target that nobody looks at."""

    def __init__(self, data: Any) -> None:
        self.data = TensorDataset(data) if isinstance(data, Tensor) else ensure_dataset(data, "data")

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        item = self.data[index]
        return (item["inputs"] if isinstance(item, dict) else item[0] if isinstance(item, tuple) else item), 0
