"""In which order of memory images go through a model: as a processor likes them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from axiograd._calls import Model, logits
from axiograd._state import all_modules

_IMAGE_DIMS = 4
#: Of the largest output: far above what another order of summation does, far below what other pixels do.
_ROUNDING = 1e-2


def prefers_channels_last(model: Model, inputs: Tensor) -> bool:
    """Whether these are images on a processor for a network of convolutions, which are faster channels last."""
    if inputs.dim() != _IMAGE_DIMS or inputs.device.type != "cpu" or not inputs.is_contiguous():
        return False
    return any(isinstance(m, nn.Conv2d) for m in all_modules(model))


class MemoryOrder:
    """Channels last where the model takes it; a model that looks at its input's strides is given the usual order."""

    def __init__(self, *, channels_last: bool) -> None:
        self.channels_last = channels_last

    @classmethod
    def of(cls, model: Model, inputs: Tensor) -> MemoryOrder:
        """Channels last where it is faster, and the first input's outputs are the same but for rounding.

        >>> MemoryOrder.of(nn.Conv2d(3, 8, 3), torch.ones(1, 3, 5, 5)).channels_last
        True
        >>> MemoryOrder.of(nn.Sequential(nn.Conv2d(3, 8, 5), nn.Flatten()), torch.ones(1, 75)).channels_last
        False
        """
        if not prefers_channels_last(model, inputs):
            return cls(channels_last=False)
        one = inputs[:1]
        with torch.no_grad():
            usual = logits(model(one.clone()))
            try:
                other = logits(model(one.contiguous(memory_format=torch.channels_last).clone()))
            except RuntimeError:
                return cls(channels_last=False)
        close = (
            bool((other - usual).abs().max() <= _ROUNDING * usual.abs().max()) if usual.shape == other.shape else False
        )
        return cls(channels_last=close)

    def run(self, call: Any, rows: Tensor) -> Any:
        """What the call gives for some rows."""
        if self.channels_last:
            try:
                return call(rows.contiguous(memory_format=torch.channels_last))
            except RuntimeError:
                found = call(rows)  # `view` refuses other strides; whatever else it was is raised again
                self.channels_last = False
                return found
        return call(rows)
