"""What methods return: an explanation, and how far attributions are from adding up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from axiograd._notebook import shown_by
from axiograd._typing import Attributions, Target


@dataclass(frozen=True, eq=False)
class Explanation:
    """The outputs of one forward pass and the attributions of the scores that the target selects from them.

    >>> from axiograd import InputXGradient
    >>> explanation = InputXGradient(lambda x: 2 * x).explain(torch.tensor([[1.0, 3.0]]), target=1)
    >>> explanation.outputs, explanation.attributions, explanation.baseline
    (tensor([[2., 6.]]), tensor([[0., 6.]]), 'zero')
    """

    outputs: Any
    attributions: Attributions
    target: Target
    method: str = ""
    baseline: str = "zero"
    #: What was explained, as it was given.
    inputs: Any = None
    #: Of a lifted network: what `energy` calls.
    energy_of: Callable[[], Tensor] | None = field(default=None, repr=False)

    _repr_html_ = shown_by("explanation_html")

    @property
    def energy(self) -> Tensor | None:
        """Of a lifted network: the share of each score that is an energy map, one more pass; None for others.

        It is of the network as it is now (`axiograd.homogeneity.energy_share`).
        """
        return None if self.energy_of is None else self.energy_of()

    def to_shap(self, names: Sequence[str] | None = None) -> Any:
        """A `shap.Explanation` (values, base values, data, names), for shap's waterfall and beeswarm plots."""
        from axiograd.attribution.shap_values import to_shap

        return to_shap(self, names)


@dataclass(frozen=True, eq=False)
class Completeness:
    """How far attributions are from adding up to F(x) − F(x′), per sample and relative to the outputs' scale.

    >>> from axiograd import InputXGradient
    >>> InputXGradient(lambda x: x.sum(1) + 1).completeness(torch.tensor([[1.0, 3.0]])).delta
    tensor([0.])
    """

    delta: Tensor
    relative: Tensor
    scale: float
    baseline: str

    @classmethod
    def of(cls, delta: Tensor, difference: Tensor, baseline: str) -> Completeness:
        """From Σ attribution − (F(x) − F(x′)) and F(x) − F(x′), of which the scale is the root mean square."""
        scale = float(difference.double().square().mean().sqrt())
        # Where nothing changes there is nothing to explain, and any delta is infinitely too much.
        relative = torch.where(delta == 0, 0.0, delta.abs() / scale)
        return cls(delta, relative, scale, baseline)

    _repr_html_ = shown_by("result_html")

    def __str__(self) -> str:
        worst, mean = float(self.relative.max()), float(self.relative.mean())
        return (
            f"relative completeness error {mean:.1e} on average, {worst:.1e} at most "
            f"(scale: root mean square of F(x) - F(x') = {self.scale:.4g}; baseline: {self.baseline})"
        )
