"""Sparsity by the Gini coefficient."""

from typing import Literal

import torch
from torch import Tensor

from axiograd.errors import ConfigurationError
from axiograd.priors._ops import rows, share
from axiograd.priors.base import Prior
from axiograd.priors.batch_mean import batch_mean


class Gini(Prior):
    """Minus the Gini coefficient of ā = mean over the batch of |attribution|: minimal when few count.

    `normalisation="published"` (the code that the numbers were made with, and Erion et al.'s):
    Ω = −½·meanᵢⱼ|āᵢ − āⱼ| / meanᵢ āᵢ, in (−1, 0];
    `normalisation="paper"` (Ω_sparse as printed, with m samples in the batch): Ω = −Σᵢⱼ|āᵢ − āⱼ| / (m·Σᵢ āᵢ),
    which is 2n/m times the other for n features, so that the same λ weighs more on small batches.

    Hesse, Schaub-Meyer, Roth: Fast Axiomatic Attribution for Neural Networks, 2021, appendix;
    Erion et al.: Improving performance of deep learning models with axiomatic attribution priors, 2021.

    >>> import torch
    >>> Gini()(torch.tensor([[0.0, 0.0, 0.0, 1.0]])), Gini()(torch.ones(1, 4))
    (tensor(-0.7500), tensor(-0.))
    >>> Gini(normalisation="paper")(torch.tensor([[0.0, 0.0, 0.0, 1.0]]))
    tensor(-6.)
    """

    def __init__(
        self, normalisation: Literal["published", "paper"] = "published", *, across_ranks: bool = True
    ) -> None:
        super().__init__()
        if normalisation not in {"published", "paper"}:
            raise ConfigurationError(f"Gini's normalisation must be 'published' or 'paper', got {normalisation!r}.")
        self.normalisation = normalisation
        self.across_ranks = across_ranks

    @property
    def per_sample(self) -> bool:
        return False

    def forward(self, attributions: Tensor) -> Tensor:
        mean, m = batch_mean(rows(attributions).abs(), across_ranks=self.across_ranks)
        n = len(mean)
        # Σᵢⱼ|āᵢ − āⱼ| = 2·Σᵢ āᵢ·(how many are smaller − how many are larger); the counts are locally
        # constant, and counting by value instead of by rank shares ties fairly.
        ordered = mean.detach().sort().values
        smaller = torch.searchsorted(ordered, mean.detach())
        larger = n - torch.searchsorted(ordered, mean.detach(), right=True)
        # Divide first: the coefficient is of degree 0, and the parts of a whole cannot overflow.
        half_sum = (share(mean, mean.sum()) * (smaller - larger)).sum()
        return -half_sum / n if self.normalisation == "published" else -2 * half_sum / m
