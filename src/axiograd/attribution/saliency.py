"""Saliency (Simonyan et al., 2014)."""

from torch import Tensor

from axiograd.attribution.base import SinglePass


class Saliency(SinglePass):
    """|∂F/∂xᵢ|.

    >>> import torch
    >>> Saliency(lambda x: (x**2).sum(1)).attribute(torch.tensor([[1.0, -3.0]]))
    tensor([[2., 6.]])
    """

    def _combine(self, x: Tensor, gradient: Tensor) -> Tensor:  # noqa: ARG002
        return gradient.abs()
