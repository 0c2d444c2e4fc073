"""Neighbouring pixels should count alike."""

from torch import Tensor

from axiograd.errors import ConfigurationError
from axiograd.priors._ops import require_pixels
from axiograd.priors.base import Prior


class Smoothness(Prior):
    """Anisotropic total variation over pixels, mean over samples.

    Ω = (1/m)·Σₛ Σᵢⱼ |aᵢ₊₁ⱼ − aᵢⱼ| + |aᵢⱼ₊₁ − aᵢⱼ|.

    The last `dims` axes are the pixels' (2 for images, 1 for series); channels are smoothed one by one.

    Erion et al.: Improving performance of deep learning models with axiomatic attribution priors, 2021.

    >>> import torch
    >>> Smoothness()(torch.tensor([[[[0.0, 1.0], [0.0, 3.0]]]]))
    tensor(6.)
    """

    def __init__(self, dims: int = 2) -> None:
        super().__init__()
        if dims < 1:
            raise ConfigurationError(f"Smoothness needs at least one axis of pixels, got dims={dims}.")
        self.dims = dims

    def forward(self, attributions: Tensor) -> Tensor:
        require_pixels("Smoothness", attributions, self.dims)
        variation = attributions.new_zeros(())
        for axis in range(-self.dims, 0):
            variation = variation + attributions.diff(dim=axis).abs().sum()
        return variation / len(attributions)
