"""Stripping that keeps the accuracy, on unlabelled images: biases read off the input, weights by least squares."""

from axiograd.homogeneity.conversion.calibrated.fit import (
    LayerFit as LayerFit,
    OverfittingWarning as OverfittingWarning,
    calibrated_strip as calibrated_strip,
    warn_of_overfitting as warn_of_overfitting,
)
from axiograd.homogeneity.conversion.calibrated.graph import calibrated_layout as calibrated_layout
from axiograd.homogeneity.conversion.calibrated.images import Calibration as Calibration
from axiograd.homogeneity.conversion.calibrated.stripped import fit_stripped as fit_stripped
