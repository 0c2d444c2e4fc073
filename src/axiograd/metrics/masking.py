"""Masking curves: how a model's answer changes while features are masked in the order of their attributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from axiograd._calls import Model, read_call, select, target_rows
from axiograd._state import in_mode
from axiograd._typing import Target
from axiograd.attribution.passes import find_rows, rows_per_pass
from axiograd.errors import ConfigurationError, InputError, NotFiniteError, TargetError
from axiograd.metrics._common import (
    IMAGE_DIMS,
    ROW_DIMS,
    Channels,
    per_feature,
    predictions,
    read_labels,
    require_tensor,
    standard_error,
)

#: Keep Positive, Keep Negative, Keep Absolute and Remove Absolute Mask.
MaskingMetric: TypeAlias = Literal["KPM", "KNM", "KAM", "RAM"]

#: A name, a number or tensor that broadcasts to the inputs, or a function of them. None: blur for images, else zero.
MaskingValue: TypeAlias = Literal["blur", "mean", "zero"] | float | Tensor | Callable[[Tensor], Tensor] | None

#: 16 fractions of features kept, geometrically spaced.
FRACTIONS: tuple[float, ...] = tuple(float(f) for f in np.geomspace(0.01, 1.0, 16))

#: From signed attributions to a key: features are kept from the highest on, and those at minus infinity never.
_KEYS: dict[str, Callable[[Tensor], Tensor]] = {
    "KPM": lambda a: torch.where(a > 0, a, -torch.inf),
    "KNM": lambda a: torch.where(a < 0, -a, -torch.inf),
    "KAM": lambda a: torch.where(a != 0, a.abs(), -torch.inf),
    "RAM": lambda a: torch.where(a != 0, -a.abs(), -torch.inf),
}
_OF_ACCURACY = frozenset({"KAM", "RAM"})


@dataclass(frozen=True)
class Blur:
    """Each pixel averaged with its neighbours by weights wᵢ ∝ exp(−((i − c)/(2σ))²) per axis, edges reflected.

    The factor 2 inside the square is the paper's: the kernel is wider than a Gaussian of standard deviation σ.

    >>> image = torch.zeros(1, 1, 5, 5)
    >>> image[0, 0, 2, 2] = 1.0
    >>> Blur(kernel_size=3, sigma=1.0)(image)[0, 0, 2].round(decimals=3)
    tensor([0.0000, 0.1190, 0.1530, 0.1190, 0.0000])
    """

    kernel_size: int = 51
    sigma: float = 41.0

    def __post_init__(self) -> None:
        if self.kernel_size < 1 or self.kernel_size % 2 == 0 or not self.sigma > 0:
            raise ConfigurationError(
                f"kernel_size={self.kernel_size}, sigma={self.sigma}: expected an odd size and a positive sigma."
            )

    def weights(self) -> Tensor:
        """The kernel along one axis; it adds up to 1.

        >>> Blur(kernel_size=3, sigma=1.0).weights()
        tensor([0.3045, 0.3910, 0.3045], dtype=torch.float64)
        """
        i = torch.arange(self.kernel_size, dtype=torch.float64) - self.kernel_size // 2
        kernel = (-(i / (2 * self.sigma)).square()).exp()
        return kernel / kernel.sum()

    def __call__(self, images: Tensor) -> Tensor:
        """The blurred images, ``[batch, channels, height, width]``: along one axis, then along the other."""
        if images.dim() != IMAGE_DIMS:
            raise InputError(
                f"inputs of shape {tuple(images.shape)} cannot be blurred: expected [batch, channels, height, width]. "
                'For rows, give masking="zero", "mean", or a tensor such as the mean of the training rows.'
            )
        pad, side = self.kernel_size // 2, min(images.shape[-2:])
        if side <= pad:
            raise InputError(
                f"images with a side of {side} are too small to be reflected by {pad} pixels: give a smaller kernel, "
                "for example masking=Blur(kernel_size=11, sigma=5.0)."
            )
        kernel = self.weights().to(images).reshape(1, 1, -1, 1)
        planes = F.pad(images, [pad] * 4, mode="reflect").flatten(0, 1).unsqueeze(1)
        return F.conv2d(F.conv2d(planes, kernel), kernel.mT).reshape(images.shape)


def masked_out(inputs: Tensor, masking: MaskingValue) -> Tensor:
    """The inputs with every feature masked.

    ``"mean"`` is each image's own mean per channel; for rows, each feature's mean over the rows of the call.

    >>> masked_out(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), "mean")
    tensor([[2., 4.], [2., 4.]])
    """
    if masking is None:
        masking = "blur" if inputs.dim() == IMAGE_DIMS else "zero"
    value: Any = masking
    if isinstance(masking, str):
        if masking not in {"blur", "mean", "zero"}:
            raise ConfigurationError(f"masking={masking!r}: expected 'blur', 'mean', 'zero', a tensor or a callable.")
        pixels = tuple(range(2, inputs.dim())) or 0
        value = Blur()(inputs) if masking == "blur" else inputs.mean(pixels, keepdim=True) if masking == "mean" else 0.0
    elif callable(masking):
        value = masking(inputs)
    background = torch.as_tensor(value, dtype=inputs.dtype, device=inputs.device)
    try:
        return background.expand_as(inputs)
    except RuntimeError:
        raise InputError(
            f"a masking value of shape {tuple(background.shape)} does not fit inputs of {tuple(inputs.shape)}."
        ) from None


@dataclass(frozen=True, eq=False)
class MaskingCurve:
    """One masking metric: a score per sample and fraction, the area below it, and their standard errors."""

    name: str
    fractions: Tensor  # [fractions]
    scores: Tensor  # [samples, fractions]: the target's logit, or 100 where the top class is right and 0 where not

    @property
    def areas(self) -> Tensor:
        """∫ score d fraction by the trapezoid rule, per sample."""
        return torch.trapezoid(self.scores, self.fractions, dim=1)

    @property
    def area(self) -> float:
        """Mean area: the number in the paper's Table 3."""
        return float(self.areas.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of `area` over samples."""
        return float(standard_error(self.areas))

    @property
    def curve(self) -> Tensor:
        """Mean score at each fraction."""
        return self.scores.mean(0)

    @property
    def curve_standard_error(self) -> Tensor:
        """Standard error of `curve` over samples."""
        return standard_error(self.scores)

    def __str__(self) -> str:
        return f"{self.name} {self.area:.2f} ± {self.standard_error:.2f} ({len(self.scores)} samples)"


def masking_curves(
    model: Model,
    inputs: Tensor,
    attributions: Tensor,
    target: Target = None,
    *,
    labels: Any = None,
    metrics: Sequence[MaskingMetric] = ("KPM", "KNM", "KAM", "RAM"),
    fractions: Sequence[float] | Tensor = FRACTIONS,
    masking: MaskingValue = None,
    channels: Channels = "mean",
    additional_forward_args: Any = None,
    max_rows: int | None = None,
) -> dict[str, MaskingCurve]:
    """KPM, KNM: the target's logit, KAM, RAM: top-1 accuracy in percent, while only a fraction of features is kept.

    Keep-positive keeps the highest positive attributions (never a feature whose attribution is not positive),
    keep-negative the lowest negative ones, keep-absolute the largest magnitudes, remove-absolute the smallest ones that
    are not zero. All other features are replaced by ``masking`` (`Blur`, "mean", "zero", a tensor or a callable).
    Accuracy is with respect to ``labels``, by default ``target``. No more than ``max_rows`` masked copies are in
    memory at once, by default as many as the processor is fast with (sixteen photos, for most networks). Copies have
    the memory order of ``inputs``: on a processor, channels-last images take up to half of the time.

    >>> weights = torch.tensor([3.0, -2.0, 1.0, -4.0])
    >>> x = torch.ones(1, 4)
    >>> curves = masking_curves(
    ...     lambda x: x @ weights, x, x * weights, metrics=("KPM", "KNM"), fractions=(0.25, 0.5, 0.75, 1.0)
    ... )
    >>> curves["KPM"].curve, curves["KNM"].curve
    (tensor([3., 4., 4., 4.], dtype=torch.float64), tensor([-4., -6., -6., -6.], dtype=torch.float64))
    """
    x = require_tensor(inputs).detach()
    if not metrics or not set(metrics) <= _KEYS.keys():
        raise ConfigurationError(f"metrics={list(metrics)!r}: expected some of {', '.join(_KEYS)}.")
    if max_rows is not None and max_rows < 1:
        raise ConfigurationError(f"max_rows={max_rows}: expected at least 1.")
    keep = torch.as_tensor(fractions, dtype=torch.float64, device=x.device)
    if keep.dim() != 1 or len(keep) < 2 or keep[0] < 0 or keep[-1] > 1 or not bool((keep.diff() > 0).all()):  # noqa: PLR2004
        raise ConfigurationError(
            f"fractions={keep.tolist()}: expected at least two increasing numbers between 0 and 1 for a curve."
        )
    a = per_feature(attributions.to(x.device), x, channels)
    score = _scoring(metrics, target, labels, x)
    call = read_call(x, additional_forward_args)
    background = masked_out(x, masking)
    mask_shape = (1, *x.shape[2:]) if x.dim() > ROW_DIMS and channels != "none" else x.shape[1:]
    rows = max_rows or rows_per_pass(model, [x])
    found = []
    with in_mode(model, training=False), torch.no_grad():
        call = find_rows(model, call, [background]) or call
        # As many samples as fill one pass per metric, so that their ranks take no more memory than a pass.
        for samples in torch.arange(len(x), device=x.device).split(max(1, rows // len(keep))):
            rank, counts = _order(a[samples], metrics, keep)
            ranks = rank.flatten(0, 1)  # a row per metric and sample
            # Copies of one row that keep equally many features are the same: the model sees each once.
            base = a.shape[1] + 1
            numbers = base * torch.arange(len(ranks), device=x.device).reshape(*counts.shape[:2], 1) + counts
            copies, places = numbers.unique(return_inverse=True)
            scores = []
            for copy in copies.split(rows):
                row, count = copy // base, copy % base
                kept = (ranks[row] < count.unsqueeze(1)).unflatten(1, mask_shape)
                sample = samples[row % len(samples)]
                outputs = call.beside(sample).call(model, (torch.where(kept, x[sample], background[sample]),))
                scores.append(score(outputs, sample))
            found.append(torch.cat(scores)[places])
    table = torch.cat(found, dim=1)
    return {m: MaskingCurve(m, keep, table[i, ..., int(m in _OF_ACCURACY)]) for i, m in enumerate(metrics)}


def _order(attributions: Tensor, metrics: Sequence[str], fractions: Tensor) -> tuple[Tensor, Tensor]:
    """Each feature's place, 0 for the first to keep, and how many features each fraction keeps.

    ``[metrics, batch, features]`` and ``[metrics, batch, fractions]``. One sort serves every fraction; features with
    equal keys are in the order of their indices.

    >>> _order(torch.tensor([[-1.0, 2.0, 5.0, 2.0]]), ("KPM",), torch.tensor([0.5, 1.0]))
    (tensor([[[3, 1, 0, 2]]], dtype=torch.int32), tensor([[[2, 3]]]))
    """
    key = torch.stack([_KEYS[metric](attributions) for metric in metrics])
    order = key.argsort(dim=-1, descending=True, stable=True)
    n = key.shape[-1]
    places = torch.arange(n, dtype=torch.int32, device=key.device)
    rank = torch.empty_like(order, dtype=torch.int32).scatter_(-1, order, places.expand_as(order))
    # 0.29 · 100 is slightly below 29 in binary.
    wanted = (fractions * n + 1e-9 * n).floor().long()
    return rank, torch.minimum(wanted, (key > -torch.inf).sum(-1, keepdim=True))


def _scoring(metrics: Sequence[str], target: Target, labels: Any, inputs: Tensor) -> Callable[[Any, Tensor], Tensor]:
    """From outputs of some samples to ``[rows, 2]``: logit and accuracy in percent, zero where no metric needs it."""
    batch, of_accuracy = len(inputs), _OF_ACCURACY.intersection(metrics)
    if isinstance(target, str):
        raise TargetError(f"target={target!r}: a masking curve follows one scalar per sample.")
    n = len(target) if isinstance(target, list) else target.numel() if isinstance(target, Tensor) else 1
    if n not in {1, batch}:
        raise TargetError(f"{n} targets for {batch} samples: give one, or one per sample.")
    if labels is None and not isinstance(target, tuple):  # which is one place in the output, not a class per sample
        labels = target
    truth = read_labels(labels, batch, inputs.device) if of_accuracy else None

    def score(outputs: Any, samples: Tensor) -> Tensor:
        found = torch.zeros(len(samples), 2, dtype=torch.float64, device=samples.device)
        if of_accuracy != set(metrics):
            found[:, 0] = select(outputs, target_rows(target, samples, batch), len(samples)).to(found)
        if truth is not None:
            found[:, 1] = 100.0 * (predictions(outputs) == truth[samples]).to(found)
        if bad := samples[~found.isfinite().all(1)].unique().tolist()[:8]:
            raise NotFiniteError(
                f"NaN or Inf in the model's output for masked copies of sample {', '.join(map(str, bad))}. Is the "
                "masking value outside of what the model can take?"
            )
        return found

    return score


def _single(metric: MaskingMetric, measured: str) -> Callable[..., MaskingCurve]:
    def curve(
        model: Model, inputs: Tensor, attributions: Tensor, target: Target = None, **options: Any
    ) -> MaskingCurve:
        return masking_curves(model, inputs, attributions, target, metrics=(metric,), **options)[metric]

    curve.__doc__ = f"{metric}: {measured}; ``options`` are keywords of `masking_curves`."
    return curve


keep_positive_mask = _single(
    "KPM", "the target's logit while only the most positive features are kept; higher is better"
)
keep_negative_mask = _single(
    "KNM", "the target's logit while only the most negative features are kept; lower is better"
)
keep_absolute_mask = _single(
    "KAM", "top-1 accuracy in percent while only the features of largest magnitude are kept; higher is better"
)
remove_absolute_mask = _single(
    "RAM", "top-1 accuracy in percent while the features of largest magnitude are removed first; lower is better"
)
