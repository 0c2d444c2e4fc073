"""QK-normalised attention: softmax over logits of degree 0, times values of degree 1."""

from typing import Any

import torch
from torch import Tensor, nn

from axiograd.homogeneity.conversion.counterpart import Scaled, blend, fenced
from axiograd.homogeneity.conversion.scale import sample_rms, unscaled, whole_rms


class NormalisedAttention(Scaled, nn.MultiheadAttention):
    """softmax(QKᵀ/√d)·V with Q and K computed from x/ρ, ρ = RMS(x)/r over the sample, and V from x; no biases.

    At the data's scale the logits are the original's; token norms within a sample keep their meaning.
    """

    def start(self, reference: Tensor | None) -> None:
        super().start(reference)
        self.register_buffer("radius", self.radius.repeat(2))

    def calibrate(self, query: Tensor, key: Tensor, *_args: Any, **_kwargs: Any) -> None:  # type: ignore[override]
        # the same arguments as forward
        blend(self.radius, torch.stack([whole_rms(query), whole_rms(key)]), self.calls)
        self.calls += 1

    @fenced
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        of_query, of_key = self.current_radius()
        unit_query, unit_key = self._unit(query, of_query), self._unit(key, of_key)
        return nn.MultiheadAttention.forward(self, unit_query, unit_key, value, *args, **kwargs)

    def _unit(self, x: Tensor, radius: Tensor) -> Tensor:
        batch_dim = None if x.dim() < 3 else 0 if self.batch_first else 1  # noqa: PLR2004
        return unscaled(x, (sample_rms(x, batch_dim) / radius).to(x.dtype))
