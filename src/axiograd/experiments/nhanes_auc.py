"""The area under the ROC curve of many models at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from axiograd.errors import InputError, NotFiniteError


def roc_auc(scores: Tensor, targets: Tensor) -> Tensor:
    """The share of (1, 0) pairs that are ranked right, a tie counting half, along the last axis; float64.

    (Σ of mid-ranks of the ones − P(P + 1)/2) / (P·Q) with P ones and Q zeros.

    >>> roc_auc(torch.tensor([[0.1, 0.4, 0.4, 0.8]]), torch.tensor([[0.0, 0.0, 1.0, 1.0]]))
    tensor([0.8750], dtype=torch.float64)
    """
    if not scores.isfinite().all():
        raise NotFiniteError("some of the scores are not finite: a network diverged, so it has no ROC-AUC")
    ordered = scores.sort(-1).values
    below = torch.searchsorted(ordered, scores)
    up_to = torch.searchsorted(ordered, scores, right=True)
    ranks = (below + up_to + 1).double() / 2
    ones = targets.double()
    n_ones, n_zeros = ones.sum(-1), (1 - ones).sum(-1)
    if not (n_ones * n_zeros).all():
        raise InputError("targets of one class only: ROC-AUC needs zeros and ones")
    return ((ranks * ones).sum(-1) - n_ones * (n_ones + 1) / 2) / (n_ones * n_zeros)
