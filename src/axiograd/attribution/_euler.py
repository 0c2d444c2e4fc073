"""Euler's identity, x·∇F(x) = k·F(x), on the numbers that an attribution has in hand anyway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

import torch
from torch import Tensor

from axiograd.attribution.arguments import Model
from axiograd.homogeneity.tracing.surroundings import modules_behind


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
    coarse = scores.dtype
    totals, scores, wide = _sums(attributions, scores)
    if _close(totals, scores):  # Σ|attribution| can only widen the bound
        return None
    kept = scores.dim()
    sizes = _added([_summed(a.detach().abs(), kept, wide) for a in attributions]).add_(scores.abs())
    if terms is not None:
        sizes = sizes + terms
    gaps = (totals - scores).abs_()
    if bool((gaps <= _FINE * sizes).all()):
        return None
    relative = gaps / (sizes + torch.finfo(wide).tiny)
    device = scores.device.type
    precision = _coarsest(coarse, *(a.dtype for a in attributions), *_formats(device, model))
    worst = int(relative.argmax())
    if float(relative.flatten()[worst]) <= rounding(_coarsest(precision, _products(device))):
        return None
    total, score, share = (float(t.flatten()[worst]) for t in (totals, scores, relative))
    return Gap(worst % scores.shape[-1], total, score, share, precision)


def adds_up(attributions: Sequence[Tensor], scores: Tensor) -> bool:
    """Whether Σ attribution is each sample's score, to rounding; False if a number is NaN or Inf.

    >>> adds_up([torch.tensor([[1.0, 2.0]])], torch.tensor([3.0]))
    True
    """
    totals, scores, _ = _sums(attributions, scores)
    return _close(totals, scores)


def _without_graph(tensor: Tensor) -> Tensor:
    return tensor.detach() if tensor.requires_grad else tensor


def _sums(attributions: Sequence[Tensor], scores: Tensor) -> tuple[Tensor, Tensor, torch.dtype]:
    """Σ attribution, the scores in the same order, and the number format of both."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    scores = _without_graph(scores)
    if scores.dtype != wide:
        scores = scores.to(wide)
    if scores.dim() > 1:  # for the target "all", scores are [batch, n] and attributions [n, batch, ...]
        scores = scores.movedim(0, -1)
    return _added([_summed(_without_graph(a), scores.dim(), wide) for a in attributions]), scores, wide


_FINE = float(torch.finfo(torch.float32).eps ** 0.5)


#: Up to so many numbers on the CPU, Python compares faster than PyTorch.
_FEW = 32


def _close(totals: Tensor, scores: Tensor) -> bool:
    if scores.device.type == "cpu" and scores.numel() <= _FEW:
        if scores.dim() > 1:
            totals, scores = totals.flatten(), scores.flatten()
        pairs = zip(totals.tolist(), scores.tolist(), strict=True)
        return all(abs(total - score) <= _FINE * abs(score) < inf for total, score in pairs)
    return torch.allclose(totals, scores, rtol=_FINE, atol=0.0) and isfinite(float(scores.sum()))


def _summed(attribution: Tensor, kept: int, wide: torch.dtype) -> Tensor:
    features = tuple(range(kept, attribution.dim()))
    return attribution.sum(features, dtype=wide) if features else attribution.to(wide)


def _added(terms: Sequence[Tensor]) -> Tensor:
    return terms[0] if len(terms) == 1 else sum(terms[1:], start=terms[0])


def rounding(number_format: torch.dtype) -> float:
    """√eps, far more than the depth · eps that rounding leaves in float32 (measured: 70 eps after 150 layers).

    Three times that in coarser formats, of which √eps is only a few eps (measured in bfloat16: 11 eps).
    """
    eps = torch.finfo(number_format).eps
    return float(eps**0.5 if eps <= torch.finfo(torch.float32).eps else 3 * eps**0.5)


def _coarsest(*formats: torch.dtype) -> torch.dtype:
    return max(torch.float32, *formats, key=lambda number_format: torch.finfo(number_format).eps)


def _formats(device: str, model: Model) -> set[torch.dtype]:
    tensors = (t for module in modules_behind(model) for t in (*module.parameters(), *module.buffers()))
    formats = {t.dtype for t in tensors if t.is_floating_point()}
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
