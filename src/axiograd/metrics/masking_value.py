"""What stands in for the features that are masked out: a blur, a mean, zero, or what the user gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from axiograd.errors import ConfigurationError, InputError

#: A word, a number or tensor that broadcasts to the inputs, or a function of them. None: blur for images, else zero.
MaskingValue: TypeAlias = Literal["blur", "mean", "zero"] | float | Tensor | Callable[[Tensor], Tensor] | None

_IMAGE_DIMS = 4


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
        """The blurred images, ``[batch, channels, height, width]``: one small matrix per axis."""
        if images.dim() != _IMAGE_DIMS:
            raise InputError(
                f"inputs of shape {tuple(images.shape)} cannot be blurred: expected [batch, channels, height, width]. "
                'For rows, give masking="zero", "mean", or a tensor such as the mean of the training rows.'
            )
        rows, columns = (self._matrix(size).to(images) for size in images.shape[-2:])
        return rows @ images @ columns.T

    def _matrix(self, size: int) -> Tensor:
        """Reflection and averaging along one axis as a matrix: a separable blur is then two products."""
        pad = self.kernel_size // 2
        if size <= pad:
            raise InputError(
                f"images with a side of {size} are too small to be reflected by {pad} pixels: give a smaller kernel, "
                "for example masking=Blur(kernel_size=11, sigma=5.0)."
            )
        source = torch.arange(-pad, size + pad).abs()
        source = torch.where(source < size, source, 2 * (size - 1) - source)
        matrix = torch.zeros(size, size, dtype=torch.float64)
        for offset, weight in enumerate(self.weights()):
            matrix[torch.arange(size), source[offset : offset + size]] += weight
        return matrix


def masked_out(inputs: Tensor, masking: MaskingValue) -> Tensor:
    """The inputs with every feature masked.

    ``"mean"`` is each image's own mean per channel; for rows, each feature's mean over the rows of the call.

    >>> masked_out(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), "mean")
    tensor([[2., 4.], [2., 4.]])
    """
    if masking is None:
        masking = "blur" if inputs.dim() == _IMAGE_DIMS else "zero"
    value: float | Tensor
    if isinstance(masking, str):
        if masking == "blur":
            value = Blur()(inputs)
        elif masking == "mean":
            spatial = tuple(range(2, inputs.dim()))
            value = inputs.mean(spatial, keepdim=True) if spatial else inputs.mean(0, keepdim=True)
        elif masking == "zero":
            value = 0.0
        else:
            raise ConfigurationError(f"masking={masking!r}: expected 'blur', 'mean', 'zero', a tensor or a callable.")
    else:
        value = masking(inputs) if callable(masking) else masking
    try:
        return torch.as_tensor(value, dtype=inputs.dtype, device=inputs.device).expand_as(inputs)
    except RuntimeError:
        shape = tuple(torch.as_tensor(value).shape)
        raise InputError(f"a masking value of shape {shape} does not fit inputs of {tuple(inputs.shape)}.") from None
