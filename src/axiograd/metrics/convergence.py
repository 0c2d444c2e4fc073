"""How many steps Integrated Gradients need (appendix, figure on convergence)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from axiograd._calls import Model
from axiograd._typing import Target
from axiograd.attribution import IntegratedGradients
from axiograd.attribution.integrated_gradients import Rule
from axiograd.metrics._evaluation import require_tensor
from axiograd.metrics._statistics import standard_error

#: The paper's numbers of steps.
STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, eq=False)
class Convergence:
    """Mean absolute difference to many steps, for each smaller number of steps."""

    steps: tuple[int, ...]
    reference_steps: int
    per_sample: Tensor  # [steps, samples]
    scale: float  # mean |IG| with the reference's steps, to read the differences against

    @property
    def differences(self) -> Tensor:
        """Mean over samples and components, one number for each of `steps`."""
        return self.per_sample.mean(1)

    @property
    def standard_errors(self) -> Tensor:
        """Of `differences`, over samples."""
        return standard_error(self.per_sample.T)

    def __str__(self) -> str:
        lines = [
            f"{n:>4} steps: {float(d):.3e} ({float(d) / self.scale:.2%})"
            for n, d in zip(self.steps, self.differences, strict=True)
        ]
        return "\n".join([f"mean |IG(n) - IG({self.reference_steps})|, and relative to the mean |IG|", *lines])


def integrated_gradients_convergence(
    model: Model,
    inputs: Tensor,
    target: Target = None,
    *,
    steps: Sequence[int] = STEPS,
    reference_steps: int = 300,
    method: Rule = "gausslegendre",
    baselines: Any = None,
    additional_forward_args: Any = None,
    internal_batch_size: int | None = None,
) -> Convergence:
    """mean |IG(n) − IG(300)| over samples and components, for n = 1, 2, 4, … 256 steps.

    >>> result = integrated_gradients_convergence(lambda x: (x**3).sum(1), torch.tensor([[1.0, 2.0]]), steps=(1, 2))
    >>> result.differences
    tensor([1.1250, 0.0000], dtype=torch.float64)
    """
    x = require_tensor(inputs)

    def attribute(n_steps: int) -> Tensor:
        ig = IntegratedGradients(model, n_steps, method, internal_batch_size)
        found: Tensor = ig.attribute(x, target, baselines=baselines, additional_forward_args=additional_forward_args)
        return found.flatten(1).double()

    reference = attribute(reference_steps)
    per_sample = torch.stack([(attribute(n) - reference).abs().mean(1) for n in steps])
    return Convergence(tuple(steps), reference_steps, per_sample, float(reference.abs().mean()))
