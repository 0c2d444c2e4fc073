"""Conversion of any model into an X-DNN: strip it, carry its biases, calibrate it, or lift it as a whole.

What `strip` puts in place of what; ρ = RMS/r of the sample, r calibrated on the example inputs, so that ρ ≈ 1 there:

- bias of Linear, Bilinear, convolutions, addmm: taken out.
- BatchNorm: `UncentredBatchNorm`, γ·x/√E[x²] with the running second moment in train mode too.
- LayerNorm, GroupNorm, InstanceNorm, RMSNorm, LocalResponseNorm N, and norms of one's own: ρ·N(x/ρ); torch's layers
  lose their shift.
- GELU, SiLU, ELU, SELU, CELU, Hardswish, Mish, Softplus, ReLU6, Hardtanh, tanh, Softsign …: two slopes that meet at
  zero (Proposition 3.8), least squares on the values that the activation sees.
- sigmoid, Hardsigmoid, softmax σ: the gate σ(s/ρ), degree 0. What the whole model returns with degree 0 is multiplied
  by ρ of its input.
- attention: softmax over logits from queries and keys at x/ρ, times values of x; no biases.
- LSTM, GRU, RNN R: ρ·R(x/ρ).
- x + constant (position embeddings), concatenated constants (class tokens), where, masked_fill, clamp: the constant
  times ρ. Weights and information stay, and at the data's scale nothing changes.

Biases are dropped and batch norms exchanged; everything else is rewritten as a module's own code runs, so that its
control flow stays its own. The first dimension is taken for the batch.
"""

from axiograd.homogeneity.conversion.bias_report import BiasReport as BiasReport, bias_report as bias_report
from axiograd.homogeneity.conversion.calibrate import (
    Calibration as Calibration,
    LayerFit as LayerFit,
    OverfittingWarning as OverfittingWarning,
    calibrated_layout as calibrated_layout,
)
from axiograd.homogeneity.conversion.convert import (
    Conversion as Conversion,
    ConversionWarning as ConversionWarning,
    to_xdnn as to_xdnn,
)
from axiograd.homogeneity.conversion.edits import Edit as Edit
from axiograd.homogeneity.conversion.kept import Kept as Kept
from axiograd.homogeneity.conversion.layers import UncentredBatchNorm as UncentredBatchNorm
from axiograd.homogeneity.conversion.lift import Lifted as Lifted, energy_share as energy_share
