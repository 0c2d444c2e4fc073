"""The public names; `axiograd` reads this list and imports each one when it is asked for."""

# ruff: noqa: PLC0414  # `x as x` is how a name is made public

from axiograd import (
    datasets as datasets,
    layers as layers,
    metrics as metrics,
    models as models,
    priors as priors,
    report as report,
    scale as scale,
    studio as studio,
    tables as tables,
    text as text,
)
from axiograd.attribution import (
    Attribution as Attribution,
    AttributionDataset as AttributionDataset,
    CaptumMethod as CaptumMethod,
    Completeness as Completeness,
    ExpectedGradients as ExpectedGradients,
    Explanation as Explanation,
    Gradient as Gradient,
    HeldCompleteness as HeldCompleteness,
    HeldGradient as HeldGradient,
    InputXGradient as InputXGradient,
    IntegratedGradients as IntegratedGradients,
    LinearTarget as LinearTarget,
    LogGradient as LogGradient,
    Occlusion as Occlusion,
    RandomAttribution as RandomAttribution,
    Saliency as Saliency,
    XGradient as XGradient,
    attribute_dataset as attribute_dataset,
    choose_method as choose_method,
    quantus_explain as quantus_explain,
)
from axiograd.axioms import AxiomReport as AxiomReport, audit as audit
from axiograd.errors import AxiogradError as AxiogradError
from axiograd.export import export_onnx as export_onnx, export_pt2 as export_pt2
from axiograd.homogeneity import (
    Certificate as Certificate,
    Conversion as Conversion,
    Verification as Verification,
    Violation as Violation,
    certify as certify,
    to_xdnn as to_xdnn,
    verify as verify,
)
from axiograd.loading import Loaded as Loaded, load as load
from axiograd.training.loss import AttributionLoss as AttributionLoss, LossTerms as LossTerms
