"""Methods that are a function of the inputs and of one gradient."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from axiograd.attribution.base import Attribution, AttributionCall, Computed


class SinglePass(Attribution):
    """aᵢ = combine(xᵢ, ∂F/∂xᵢ)."""

    @abstractmethod
    def _combine(self, x: Tensor, gradient: Tensor) -> Tensor:
        """The attribution of one feature tensor."""

    def _compute(self, call: AttributionCall) -> Computed:
        done = self._differentiate(call)
        done.check_finite(call.arguments.features)
        pairs = zip(call.arguments.features, done.gradients, strict=True)
        return Computed([self._combine(x, g) for x, g in pairs], done.outputs)
