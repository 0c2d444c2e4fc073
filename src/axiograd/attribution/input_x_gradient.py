"""Input×Gradient (Shrikumar et al., 2016)."""

from torch import Tensor

from axiograd.attribution.base import SinglePass


class InputXGradient(SinglePass):
    """xᵢ · ∂F/∂xᵢ, for any differentiable model and without a claim to exactness.

    >>> import torch
    >>> InputXGradient(lambda x: (x**2).sum(1)).attribute(torch.tensor([[1.0, -3.0]]))
    tensor([[ 2., 18.]])
    """

    multiplies_by_inputs = True

    def _combine(self, x: Tensor, gradient: Tensor) -> Tensor:
        return x * gradient
