"""Euler's identity, x·∇F(x) = k·F(x), on the numbers that an attribution has in hand anyway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from axiograd._calls import Model
from axiograd._state import all_tensors
from axiograd.attribution.passes import FINE, adds_up, summed, sums


class InexactWarning(UserWarning):
    """Attributions that add up to the score less closely than the model's degree promises."""


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


def euler_gap(attributions: Sequence[Tensor], scores: Tensor, model: Model, terms: Tensor | None = None) -> Gap | None:
    """The worst sample's gap between Σ attribution and score, None if all are within rounding.

    `terms` is Σ|term| of scores that are sums of outputs: what cancels there has been rounded, too.

    >>> euler_gap([torch.tensor([[1.0, 2.0]])], torch.tensor([3.0]), torch.relu) is None
    True
    >>> print(euler_gap([torch.tensor([[1.0, 2.0]])], torch.tensor([5.0]), torch.relu))
    the attributions of sample 0 add up to 3 and its score is 5, a gap of 25.00% of Σ|attribution| + |score|
    """
    if adds_up(attributions, scores):  # Σ|attribution| can only widen the bound
        return None
    coarse = scores.dtype
    totals, scores = sums(attributions, scores)
    wide = scores.dtype
    sizes = summed([a.detach().abs() for a in attributions], scores.dim(), wide) + scores.abs()
    if terms is not None:
        sizes = sizes + terms
    gaps = (totals - scores).abs_()
    if bool((gaps <= FINE * sizes).all()):
        return None
    relative = gaps / (sizes + torch.finfo(wide).tiny)
    device = scores.device.type
    precision = _coarsest(coarse, *(a.dtype for a in attributions), *_formats(device, model))
    worst = int(relative.argmax())
    if float(relative.flatten()[worst]) <= rounding(_coarsest(precision, _products(device))):
        return None
    total, score, share = (float(t.flatten()[worst]) for t in (totals, scores, relative))
    return Gap(worst % scores.shape[-1], total, score, share, precision)


def rounding(number_format: torch.dtype) -> float:
    """√eps, far more than the depth · eps that rounding leaves in float32 (measured: 70 eps after 150 layers).

    Three times that in coarser formats, of which √eps is only a few eps (measured in bfloat16: 11 eps).
    """
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
