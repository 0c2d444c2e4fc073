"""Occlusion (Zeiler and Fergus, 2014): no gradient, only what the score loses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import product

import torch
from torch import Tensor

from axiograd._calls import Model
from axiograd._state import preserved_buffers, with_buffers
from axiograd.attribution.base import Attribution, AttributionCall, Computed
from axiograd.attribution.layer import Layer
from axiograd.attribution.passes import run
from axiograd.attribution.paths import check_count
from axiograd.errors import ConfigurationError

#: A window without a size is this part of an axis.
PART = 8
_TABLE = 2  # dimensions: samples and features


class Occlusion(Attribution):
    """aᵢ = mean over the windows W ∋ i of F(x) − F(x with W at the baseline): one forward pass per window.

    Windows are `window` features long along every axis behind the channels, which are covered together, and `stride`
    apart; without them, an eighth of an axis, side by side. Of a table, each feature is a window. The last windows end
    where the input does.

    >>> x = torch.tensor([[1.0, 2.0, 3.0]])
    >>> Occlusion(lambda x: x.prod(1)).attribute(x, baselines=1.0)
    tensor([[0., 3., 4.]])
    >>> Occlusion(lambda x: x.flatten(1).sum(1), window=2, stride=1).attribute(torch.ones(1, 1, 3))
    tensor([[[2., 2., 2.]]])
    """

    takes_baselines = True

    def __init__(
        self, model: Model, window: int | None = None, stride: int | None = None, *, layer: Layer | None = None
    ) -> None:
        super().__init__(model, layer=layer)
        for name, value in (("window", window), ("stride", stride)):
            if value is not None:
                check_count(name, value)
        if stride is not None and (window is None or stride > window):
            raise ConfigurationError(
                f"window={window}, stride={stride}: features between two windows would get no attribution; give a "
                "window that is at least as long as the stride."
            )
        self.window, self.stride = window, stride

    def windows(self, shape: torch.Size) -> Iterator[tuple[slice, ...]]:
        """The windows of inputs of this shape, samples first, as what to index them with."""
        axes = shape[1:] if len(shape) <= _TABLE else shape[2:]
        whole = (slice(None),) * (len(shape) - len(axes))
        along = []
        for size in axes:
            length = min(size, self.window or (1 if len(shape) <= _TABLE else max(1, size // PART)))
            stride = min(self.stride or length, length)
            along.append([slice(at, at + length) for at in range(0, size - length + stride, stride)])
        return (whole + chosen for chosen in product(*along))

    def _compute(self, call: AttributionCall) -> Computed:
        with nullcontext() if call.create_graph else torch.no_grad():
            features = call.arguments.features
            outputs = run(call.model, call.arguments, features)
            score = self._score(outputs, call.target, call.arguments.batch)
            found = [self._of(call, place, score) for place in range(len(features))]
        return Computed(found, outputs)

    def _of(self, call: AttributionCall, place: int, score: Tensor) -> Tensor:
        """The attributions of one of the inputs."""
        arguments, features = call.arguments, list(call.arguments.features)
        x, baseline = features[place], call.baselines[place].expand_as(features[place])
        # Outputs first, as for all methods; half precision would lose the small terms of a sum.
        several = (*score.shape[1:], *x.shape)
        wide = torch.promote_types(score.dtype, torch.float32)
        total = torch.zeros(several, dtype=wide, device=x.device)
        count = torch.zeros(x.shape[1:], dtype=wide, device=x.device)
        outputs = (slice(None),) * (score.dim() - 1)
        for window in self.windows(x.shape):
            features[place] = x.clone()
            features[place][window] = baseline[window]
            # Of a training step, only the pass that makes the outputs counts in statistics.
            with preserved_buffers(with_buffers(call.model)) if call.is_training_step else nullcontext():
                without = self._score(run(call.model, arguments, features), call.target, arguments.batch)
            lost = (score - without).to(wide).movedim(0, -1)
            total[outputs + window] += lost.reshape(*lost.shape, *[1] * (x.dim() - 1))
            count[window[1:]] += 1
        return (total / count).to(x.dtype)
