"""What is exact: which functions are homogeneous, proven operator by operator, and how to make them so."""

from axiograd.homogeneity.certificate import (
    Certificate as Certificate,
    Epsilon as Epsilon,
    Violation as Violation,
)
from axiograd.homogeneity.certification import certify as certify
from axiograd.homogeneity.conversion import (
    BiasReport as BiasReport,
    Calibration as Calibration,
    Conversion as Conversion,
    ConversionWarning as ConversionWarning,
    Edit as Edit,
    Kept as Kept,
    Lifted as Lifted,
    bias_report as bias_report,
    calibrated_layout as calibrated_layout,
    energy_share as energy_share,
    to_xdnn as to_xdnn,
)
from axiograd.homogeneity.rules.registry import rule as rule
from axiograd.homogeneity.verification import Verification as Verification, verify as verify
