"""Attributions without high spatial frequencies."""

from typing import Literal

import torch
from torch import Tensor

from axiograd.errors import ConfigurationError
from axiograd.priors._ops import require_pixels, rescaled, rows, share
from axiograd.priors.base import Prior

_MEASURES = ("share", "energy")


class LowFrequency(Prior):
    """What the spectrum Â of the attributions has above a cut-off c in cycles per pixel, mean over samples.

    `measure="share"`: Ω = (1/m)·Σₛ Σ_{|f|>c}|Â(f)|² / Σ_f|Â(f)|²; `measure="energy"`: the numerator alone,
    with the orthonormal transform, so that all frequencies together have the energy Σᵢ aᵢ². The last `dims`
    axes are pixels.

    The penalty on high frequencies follows Yin et al.: A Fourier perspective on model robustness, 2019.

    >>> import torch
    >>> checkerboard = torch.tensor([[[1.0, -1.0], [-1.0, 1.0]]])
    >>> LowFrequency(cutoff=0.25)(checkerboard), LowFrequency(cutoff=0.25)(torch.ones(1, 2, 2))
    (tensor(1.), tensor(0.))
    """

    def __init__(self, cutoff: float = 0.25, *, measure: Literal["share", "energy"] = "share", dims: int = 2) -> None:
        super().__init__()
        if measure not in _MEASURES:
            raise ConfigurationError(f"LowFrequency's measure must be one of {_MEASURES}, got {measure!r}.")
        highest = 0.5 * dims**0.5
        if dims < 1 or not 0 <= cutoff < highest:
            raise ConfigurationError(
                f"LowFrequency(dims={dims}) needs 0 ≤ cutoff < {highest:.3f} cycles per pixel, got {cutoff}."
            )
        self.cutoff = cutoff
        self.measure = measure
        self.dims = dims

    def forward(self, attributions: Tensor) -> Tensor:
        require_pixels("LowFrequency", attributions, self.dims)
        axes = tuple(range(-self.dims, 0))
        if self.measure == "share":
            attributions = rescaled(attributions)
        spectrum = torch.fft.fftn(attributions, dim=axes, norm="ortho")
        power = spectrum.real.square() + spectrum.imag.square()
        high = rows(power * self._above(attributions)).sum(1)
        return (share(high, rows(power).sum(1)) if self.measure == "share" else high).mean()

    def _above(self, attributions: Tensor) -> Tensor:
        squared = attributions.new_zeros(())
        for size in attributions.shape[-self.dims :]:
            frequency = torch.fft.fftfreq(size, dtype=attributions.dtype, device=attributions.device)
            squared = squared.unsqueeze(-1) + frequency.square()
        return squared > self.cutoff**2
