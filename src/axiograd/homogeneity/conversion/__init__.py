"""Conversion of any model into an X-DNN: strip it of what is not homogeneous, or lift it as a whole."""

from axiograd.homogeneity.conversion.activations import TwoSlopes as TwoSlopes
from axiograd.homogeneity.conversion.attention import NormalisedAttention as NormalisedAttention
from axiograd.homogeneity.conversion.convert import to_xdnn as to_xdnn
from axiograd.homogeneity.conversion.counterpart import Counterpart as Counterpart
from axiograd.homogeneity.conversion.edit import Conversion as Conversion, Edit as Edit
from axiograd.homogeneity.conversion.gates import NormalisedGate as NormalisedGate, NormalisedGLU as NormalisedGLU
from axiograd.homogeneity.conversion.lift import Lifted as Lifted
from axiograd.homogeneity.conversion.norms import (
    ScaleKeeping as ScaleKeeping,
    UncentredBatchNorm as UncentredBatchNorm,
)
