"""Whether attributions add up to the score: Euler's identity, x·∇F(x) = k·F(x), on numbers that are there anyway."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from axiograd._calls import LinearTarget, Model, logits
from axiograd._state import all_tensors
from axiograd._typing import Target

#: √eps of float32, far more than the depth · eps that rounding leaves (measured: 70 eps after 150 layers).
FINE = float(torch.finfo(torch.float32).eps ** 0.5)

#: Up to so many numbers, Python compares faster than PyTorch.
_FEW = 32


class InexactWarning(UserWarning):
    """Attributions that add up to the score less closely than the model's degree promises."""


def warn_inexact(text: str) -> None:
    """Warn whoever called from outside of this package."""
    frame, level = sys._getframe(1), 2  # noqa: SLF001
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("axiograd."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, InexactWarning, stacklevel=level)


@dataclass(frozen=True)
class Gap:
    """The sample whose attributions are farthest from adding up to its score."""

    sample: int
    total: float
    score: float
    #: |total − score| / (Σ|attribution| + |score|)
    relative: float
    #: The coarsest number format among inputs, parameters and outputs; float32 if all are finer.
    precision: torch.dtype

    def __str__(self) -> str:
        return (
            f"the attributions of sample {self.sample} add up to {self.total:.6g} and its score is {self.score:.6g}, "
            f"a gap of {self.relative:.2%} of Σ|attribution| + |score|"
        )


def summed(tensors: Sequence[Tensor], kept: int, wide: torch.dtype) -> Tensor:
    """Σ over all tensors and all their dimensions but the first `kept`."""
    first, *others = [t.sum(tuple(range(kept, t.dim())), dtype=wide) if t.dim() > kept else t.to(wide) for t in tensors]
    return sum(others, start=first)


def adds_up(attributions: Sequence[Tensor], scores: Tensor) -> bool:
    """Whether Σ attribution is each sample's score, to rounding; False if a number is NaN or Inf.

    >>> adds_up([torch.tensor([[1.0, 2.0]])], torch.tensor([3.0]))
    True
    """
    totals, scores = _totals(attributions, scores)
    if scores.numel() <= _FEW:
        pairs = zip(totals.flatten().tolist(), scores.flatten().tolist(), strict=True)
        return all(abs(total - score) <= FINE * abs(score) for total, score in pairs)
    return bool(((totals - scores).abs() <= FINE * scores.abs()).all())


def euler_gap(
    attributions: Sequence[Tensor], scores: Tensor, model: Model, target: Target = None, outputs: Any = None
) -> Gap | None:
    """The worst sample's gap between Σ attribution and score, None if all are within rounding.

    Of a weighted sum of outputs, what cancels there has been rounded, too.

    >>> euler_gap([torch.tensor([[1.0, 2.0]])], torch.tensor([3.0]), torch.relu) is None
    True
    >>> print(euler_gap([torch.tensor([[1.0, 2.0]])], torch.tensor([5.0]), torch.relu))
    the attributions of sample 0 add up to 3 and its score is 5, a gap of 25.00% of Σ|attribution| + |score|
    """
    device = scores.device.type
    precision = _coarsest(scores.dtype, *(a.dtype for a in attributions), *_formats(device, model))
    totals, scores = _totals(attributions, scores)
    sizes = summed([a.detach().abs() for a in attributions], scores.dim(), scores.dtype) + scores.abs()
    if isinstance(target, LinearTarget) and target.weights.numel():
        sizes = sizes + LinearTarget(target.weights.abs())(logits(outputs).detach().abs())
    relative = (totals - scores).abs() / (sizes + torch.finfo(sizes.dtype).tiny)
    worst = int(relative.argmax())
    total, score, share = (float(t.flatten()[worst]) for t in (totals, scores, relative))
    if share <= _rounding(_coarsest(precision, _products(device))):
        return None
    return Gap(worst % scores.shape[-1], total, score, share, precision)


def _totals(attributions: Sequence[Tensor], scores: Tensor) -> tuple[Tensor, Tensor]:
    """Σ attribution, and the scores in the same order and number format, float32 or finer; both without graphs."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    scores = scores.detach().to(wide)
    if scores.dim() > 1:  # for the target "all", scores are [batch, n] and attributions [n, batch, ...]
        scores = scores.movedim(0, -1)
    return summed([a.detach() for a in attributions], scores.dim(), wide), scores


def _rounding(number_format: torch.dtype) -> float:
    """√eps; three times that in coarse formats, of which √eps is only a few eps (measured in bfloat16: 11 eps)."""
    eps = torch.finfo(number_format).eps
    return float(eps**0.5 if eps <= torch.finfo(torch.float32).eps else 3 * eps**0.5)


def _coarsest(*formats: torch.dtype) -> torch.dtype:
    return max(torch.float32, *formats, key=lambda number_format: torch.finfo(number_format).eps)


def _formats(device: str, model: Model) -> set[torch.dtype]:
    formats = {t.dtype for t in all_tensors(model) if t.is_floating_point()}
    return formats | ({torch.get_autocast_dtype(device)} if torch.is_autocast_enabled(device) else set())


def _products(device: str) -> torch.dtype:
    """As how coarse a format float32 may be multiplied."""
    try:
        exact = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # set in the newer way, for one backend alone
        exact = False
    if not exact:
        return torch.bfloat16
    # TensorFloat-32, in which cuDNN convolves unasked, has as many digits as float16.
    return torch.float32 if device == "cpu" else torch.float16
