"""A recipe says how to optimise: optimizer, learning rate over time, epochs, batch size, mixup."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import nn

from axiograd._names import choose_from
from axiograd.errors import ConfigurationError


@dataclass(frozen=True)
class Recipe:
    """How a model is optimised; the defaults are the paper's for AlexNet and VGG16 (appendix B.1).

    The learning rate after e epochs (a fraction within an epoch) is lr·f(e) with

        constant: f = 1,    step: f = step_factor^⌊e / step_epochs⌋,    cosine: f = ½(1 + cos(π·e / epochs)).

    `scalar_lr_factor` multiplies it for parameters whose name ends in a word with "bias" or "scale".
    `mixup` is the α of Beta(α, α).

    >>> recipe = Recipe.preset("fixup_resnet50", epochs=10)
    >>> recipe.lr, recipe.schedule, recipe.mixup
    (0.1, 'cosine', 0.7)
    >>> recipe.lr_factor(5.0)
    0.5
    """

    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: Literal["constant", "step", "cosine"] = "step"
    step_epochs: int = 30
    step_factor: float = 0.1
    epochs: int = 100
    batch_size: int = 256
    mixup: float = 0.0
    scalar_lr_factor: float = 1.0

    def __post_init__(self) -> None:
        _one_of("optimizer", self.optimizer, ("sgd", "adam"))
        _one_of("schedule", self.schedule, ("constant", "step", "cosine"))

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """One of the paper's recipes, with some of its settings replaced.

        >>> Recipe.preset("alexnet", epochs=3).epochs
        3
        """
        _one_of("preset", name, tuple(PRESETS))
        return cls(**{**PRESETS[name], **overrides})

    def lr_factor(self, epochs_done: float) -> float:
        """f(e), by which the initial learning rate is multiplied."""
        if self.schedule == "step":
            return float(self.step_factor ** (int(epochs_done) // self.step_epochs))
        if self.schedule == "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * min(epochs_done / self.epochs, 1.0)))
        return 1.0

    def build_optimizer(self, named_parameters: Iterable[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
        """The optimizer over the parameters that require gradients."""
        groups: dict[float, list[nn.Parameter]] = {}
        for name, parameter in named_parameters:
            if parameter.requires_grad:
                word = name.rpartition(".")[2]
                factor = self.scalar_lr_factor if "bias" in word or "scale" in word else 1.0
                groups.setdefault(factor * self.lr, []).append(parameter)
        if not groups:
            raise ConfigurationError("no parameter of the model requires a gradient; there is nothing to train.")
        rates = [{"params": members, "lr": lr} for lr, members in groups.items()]
        if self.optimizer == "adam":
            return torch.optim.Adam(rates, lr=self.lr, weight_decay=self.weight_decay)
        return torch.optim.SGD(rates, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)


#: Appendix B.1 of the paper. The Fixup authors' published code trains biases and scales at a tenth of lr.
PRESETS: dict[str, dict[str, Any]] = {
    "alexnet": {},
    "vgg16": {},
    "fixup_resnet50": {"lr": 0.1, "schedule": "cosine", "mixup": 0.7, "scalar_lr_factor": 0.1},
}


def _one_of(what: str, value: object, known: Iterable[str]) -> None:
    names = list(known)
    if value not in names:
        raise ConfigurationError(f"recipe: {what} {value!r} is not known; {choose_from(str(value), names)}.")
