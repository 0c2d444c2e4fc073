"""What a change of contrast, x → αx, does to accuracy and attributions (the paper's Figure 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from axiograd._calls import logits, read_call
from axiograd._state import in_mode
from axiograd.attribution import Attribution
from axiograd.errors import ConfigurationError
from axiograd.metrics._common import predictions, read_labels, require_tensor, standard_error

#: From full contrast downwards.
FACTORS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)


@dataclass(frozen=True, eq=False)
class ContrastRobustness:
    """Accuracy and change of attributions at each contrast; one column per sample."""

    factors: tuple[float, ...]
    correct: Tensor  # [factors, samples]: 100 where the predicted class is the label, 0 where not
    changes: Tensor  # [factors, samples]

    @property
    def accuracy(self) -> Tensor:
        """Top-1 accuracy in percent at each factor."""
        return self.correct.mean(1)

    @property
    def accuracy_standard_error(self) -> Tensor:
        """Of `accuracy`, over samples."""
        return standard_error(self.correct.T)

    @property
    def attribution_change(self) -> Tensor:
        """Mean change at each factor: 0 if attributions only scale, 2 if they turn into their opposite."""
        return self.changes.mean(1)

    @property
    def attribution_change_standard_error(self) -> Tensor:
        """Of `attribution_change`, over samples."""
        return standard_error(self.changes.T)


def contrast_robustness(
    method: Attribution,
    inputs: Tensor,
    labels: Any,
    *,
    factors: Sequence[float] = FACTORS,
    additional_forward_args: Any = None,
) -> ContrastRobustness:
    """Accuracy of F(αx), and ‖A(αx)/‖A(αx)‖ − A(x)/‖A(x)‖‖ for the label's attributions, at each α.

    >>> from axiograd.attribution import InputXGradient
    >>> x = torch.tensor([[1.0, 0.5], [0.5, 1.0]])
    >>> model = lambda x: x + torch.tensor([0.2, 0.0])  # a bias, so contrast matters
    >>> result = contrast_robustness(InputXGradient(model), x, [0, 1], factors=(1.0, 0.1))
    >>> result.accuracy, result.attribution_change
    (tensor([100.,  50.], dtype=torch.float64), tensor([0., 0.], dtype=torch.float64))
    """
    x = require_tensor(inputs)
    if not factors or min(factors) <= 0:
        raise ConfigurationError(f"factors={tuple(factors)}: expected positive numbers.")
    truth = read_labels(labels, len(x), x.device)
    with in_mode(method.model, training=False), torch.no_grad():
        runs = [_run(method, alpha * x, truth, additional_forward_args) for alpha in (1.0, *factors)]
    (_, at_full), *scaled = runs
    correct = torch.stack([c for c, _ in scaled])
    changes = torch.stack([(direction - at_full).norm(dim=1) for _, direction in scaled])
    return ContrastRobustness(tuple(factors), correct, changes)


def _run(method: Attribution, x: Tensor, truth: Tensor, additional: Any) -> tuple[Tensor, Tensor]:
    """Whether each prediction is right, and each attribution scaled to length 1."""
    outputs = read_call(x, additional).call(method.model, (x,))
    single = logits(outputs).numel() == len(x)
    found = method.attribute(x, None if single else truth, additional_forward_args=additional).flatten(1).double()
    norm = found.norm(dim=1, keepdim=True)
    return 100.0 * (predictions(outputs) == truth).double(), torch.where(norm > 0, found / norm, 0.0)
