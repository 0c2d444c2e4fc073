"""Recurrent layers at the data's scale: tanh and sigmoid cells see x/ρ, and what they return is multiplied by ρ."""

from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map

from axiograd.homogeneity.conversion.counterpart import Scaled, fenced
from axiograd.homogeneity.conversion.scale import unscaled


class ScaleKeepingRecurrent(Scaled):
    """R(x, h) → ρ·R(x/ρ, h/ρ), ρ = RMS(x)/r over the sequence: R itself at the data's scale, biases included."""

    batch_first: bool

    @fenced
    def forward(self, x: Tensor, hx: Any = None) -> Any:
        batched = x.dim() == 3  # noqa: PLR2004
        rho = self.ratio(x, None if not batched else 0 if self.batch_first else 1)
        per_state = rho.reshape([1, -1, 1] if batched else [1, 1])
        unit_state = None if hx is None else tree_map(lambda h: unscaled(h, per_state), hx)
        output, state = super().forward(unscaled(x, rho), unit_state)
        return rho * output, tree_map(lambda h: per_state * h, state)


class ScaleKeepingLSTM(ScaleKeepingRecurrent, nn.LSTM):  # type: ignore[misc]  # torch overloads forward for packed sequences
    """LSTM at the data's scale."""


class ScaleKeepingGRU(ScaleKeepingRecurrent, nn.GRU):  # type: ignore[misc]  # torch overloads forward for packed sequences
    """GRU at the data's scale."""


class ScaleKeepingRNN(ScaleKeepingRecurrent, nn.RNN):  # type: ignore[misc]  # torch overloads forward for packed sequences
    """RNN at the data's scale."""


RECURRENT: dict[type[nn.Module], type[ScaleKeepingRecurrent]] = {
    nn.LSTM: ScaleKeepingLSTM,
    nn.GRU: ScaleKeepingGRU,
    nn.RNN: ScaleKeepingRNN,
}
