"""Small operations that several priors share."""

import torch
from torch import Tensor

from axiograd.errors import InputError


def rows(attributions: Tensor) -> Tensor:
    """One row of features per sample."""
    return attributions.reshape(len(attributions), -1)


def require_pixels(prior: str, attributions: Tensor, dims: int) -> None:
    """Refuse attributions without a batch axis beside their axes of pixels."""
    if attributions.ndim <= dims:
        raise InputError(
            f"{prior}(dims={dims}) needs a batch axis and {dims} axes of pixels, got attributions of shape "
            f"{list(attributions.shape)}."
        )


def rescaled(attributions: Tensor) -> Tensor:
    """Each sample divided by its largest magnitude, so that squares neither overflow nor underflow.

    Only for functions of degree 0: they do not see the factor, so it needs no gradient of its own. A sample
    of zeros stays as it is.
    """
    largest = rows(attributions).detach().abs().amax(1)
    tiny = torch.finfo(largest.dtype).tiny
    scale = torch.where(largest >= tiny, largest, torch.ones_like(largest))
    return attributions / scale.reshape(-1, *[1] * (attributions.ndim - 1))


def share(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole, where a whole too small to divide by (0 or subnormal) counts as 1."""
    enough = whole >= torch.finfo(whole.dtype).tiny
    return part / torch.where(enough, whole, torch.ones_like(whole))
