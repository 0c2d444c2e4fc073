"""The masked copies of some samples, each one run through the model once, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from axiograd._calls import Call, Model, select, target_rows
from axiograd._typing import Target
from axiograd.attribution.memory_order import MemoryOrder
from axiograd.errors import NotFiniteError, TargetError
from axiograd.metrics._evaluation import as_labels, predictions
from axiograd.metrics.masking_value import MaskingValue, masked_out
from axiograd.metrics.ranking import ORDERS, kept, ranks

_OF_ACCURACY = frozenset({"KAM", "RAM"})
_ROW_DIMS = 2


@dataclass(frozen=True, eq=False)
class Scoring:
    """From outputs to scores: the target's logit, and whether the predicted class is the label."""

    target: Target
    labels: Tensor | None
    of_logit: bool
    of_accuracy: tuple[bool, ...]
    batch: int

    @classmethod
    def read(cls, metrics: Sequence[str], target: Target, labels: Any, inputs: Tensor) -> Scoring:
        """Check that every metric has what it needs."""
        of_accuracy = tuple(m in _OF_ACCURACY for m in metrics)
        if isinstance(target, str):
            raise TargetError(f"target={target!r}: a masking curve follows one scalar per sample.")
        n = len(target) if isinstance(target, list) else target.numel() if isinstance(target, Tensor) else 1
        if n not in {1, len(inputs)}:
            raise TargetError(f"{n} targets for {len(inputs)} samples: give one, or one per sample.")
        read = None
        if any(of_accuracy):
            found = target if labels is None else labels
            # A tuple as a target is one place in the output, and not a class of each sample.
            if found is None or callable(found) or (labels is None and isinstance(found, tuple)):
                raise TargetError("KAM and RAM measure accuracy: give labels=, one class per sample.")
            read = as_labels(found, len(inputs), inputs.device)
        return cls(target, read, not all(of_accuracy), of_accuracy, len(inputs))

    def __call__(self, outputs: Any, samples: Tensor) -> Tensor:
        """``[rows, 2]``: logit and accuracy in percent; zero where no metric asks for it."""
        scores = torch.zeros(len(samples), 2, dtype=torch.float64, device=samples.device)
        if self.of_logit:
            target = target_rows(self.target, samples, self.batch)
            scores[:, 0] = select(outputs, target, len(samples)).to(scores)
        if self.labels is not None:
            scores[:, 1] = 100.0 * (predictions(outputs) == self.labels[samples]).to(scores)
        return scores


class Background:
    """The samples with every feature masked; what is the same function of each sample is computed when needed."""

    def __init__(self, inputs: Tensor, masking: MaskingValue) -> None:
        self.inputs = inputs
        self.masking = masking
        rowwise = inputs.dim() == _ROW_DIMS and not callable(masking)
        expands = not (callable(masking) or masking is None or (isinstance(masking, str) and masking != "zero"))
        self.fixed = masked_out(inputs, masking) if rowwise or expands else None

    def of(self, samples: Tensor) -> Tensor:
        """The background of some samples."""
        if self.fixed is not None:
            return self.fixed[samples]
        return masked_out(self.inputs[samples], self.masking)


class MaskedCopies:
    """Every (metric, sample, number of features kept) that occurs, without repetitions."""

    def __init__(
        self,
        inputs: Tensor,
        background: Tensor,
        attributions: Tensor,
        metrics: Sequence[str],
        fractions: Tensor,
        *,
        pixelwise: bool,
    ) -> None:
        self.inputs, self.background = inputs, background
        ranked = [ranks(ORDERS[m](attributions)) for m in metrics]
        self.ranks = torch.stack([rank for rank, _ in ranked])
        counts = torch.stack([kept(fractions, attributions.shape[1], candidates) for _, candidates in ranked])
        self.shape = counts.shape
        metric, sample, _ = torch.meshgrid(
            *(torch.arange(n, device=counts.device) for n in counts.shape), indexing="ij"
        )
        # A copy that keeps nothing is the same for every metric.
        jobs = torch.stack([torch.where(counts == 0, 0, metric), sample, counts], dim=-1)
        self.jobs, self.places = jobs.flatten(0, 2).unique(dim=0, return_inverse=True)
        self.mask_shape = (1, *inputs.shape[2:]) if pixelwise else tuple(inputs.shape[1:])

    def scores(
        self, model: Model, scoring: Scoring, arguments: Call, samples: Tensor, max_rows: int, order: MemoryOrder
    ) -> Tensor:
        """``[metrics, samples, fractions]``."""
        parts = []
        for metric, sample, count in (rows.unbind(1) for rows in self.jobs.split(max_rows)):
            keep = self.ranks[metric, sample] < count.unsqueeze(1)
            copies = torch.where(keep.unflatten(1, self.mask_shape), self.inputs[sample], self.background[sample])
            own = arguments.beside(samples[sample])
            outputs = order.run(lambda rows, own=own: own.call(model, (rows,)), copies)
            parts.append(scoring(outputs, samples[sample]))
            _check_finite(parts[-1], samples[sample])
        found = torch.cat(parts)[self.places].unflatten(0, self.shape)
        return torch.stack([found[i, ..., int(accuracy)] for i, accuracy in enumerate(scoring.of_accuracy)])


def _check_finite(scores: Tensor, samples: Tensor) -> None:
    bad = ~scores.isfinite().all(1)
    if bool(bad.any()):
        named = sorted(set(samples[bad].tolist()))[:8]
        raise NotFiniteError(
            f"NaN or Inf in the model's output for masked copies of sample {str(named)[1:-1]}. Is the masking value "
            "outside of what the model can take?"
        )
