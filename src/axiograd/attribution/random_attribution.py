"""Attributions drawn at random: the yardstick that any method has to beat."""

from __future__ import annotations

import torch

from axiograd._calls import Model
from axiograd.attribution.base import Attribution, AttributionCall, Computed, private_generator
from axiograd.attribution.layer import Layer
from axiograd.attribution.passes import run


class RandomAttribution(Attribution):
    """aᵢ ~ N(0, 1), independent of model and input.

    >>> generator = torch.Generator().manual_seed(0)
    >>> RandomAttribution(torch.nn.Identity(), generator=generator).attribute(torch.ones(1, 1)).shape
    torch.Size([1, 1])
    """

    differentiable = False

    def __init__(self, model: Model, *, generator: torch.Generator | None = None, layer: Layer | None = None) -> None:
        super().__init__(model, layer=layer)
        self.generator = generator
        self._private = private_generator()

    def _compute(self, call: AttributionCall) -> Computed:
        with torch.no_grad():
            outputs = run(call.model, call.arguments, call.arguments.features)
            n = self._score(outputs, call.target, call.arguments.batch).shape[1:]
        generator = self.generator or self._private
        drawn = [
            torch.randn((*n, *x.shape), dtype=x.dtype, generator=generator).to(x.device)
            for x in call.arguments.features
        ]
        return Computed(drawn, outputs)
