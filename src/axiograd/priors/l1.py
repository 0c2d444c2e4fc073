"""Little attribution altogether."""

from torch import Tensor

from axiograd.priors._ops import rows
from axiograd.priors.base import Prior


class L1(Prior):
    """The sum of absolute attributions, mean over samples: Ω = (1/m)·Σₛ Σᵢ |aₛᵢ|.

    As a penalty on weights: Tibshirani, Regression shrinkage and selection via the lasso, 1996.

    >>> import torch
    >>> L1()(torch.tensor([[1.0, -2.0], [0.0, 5.0]]))
    tensor(4.)
    """

    def forward(self, attributions: Tensor) -> Tensor:
        return rows(attributions).abs().sum(1).mean()
