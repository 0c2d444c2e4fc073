"""How much each feature counts: one method per file, all with the same two calls, `attribute` and `explain`."""

from axiograd._calls import LinearTarget as LinearTarget
from axiograd.attribution.base import Attribution as Attribution
from axiograd.attribution.captum import CaptumMethod as CaptumMethod
from axiograd.attribution.contextual_decomposition import contextual_decomposition as contextual_decomposition
from axiograd.attribution.dataset import (
    AttributionDataset as AttributionDataset,
    attribute_dataset as attribute_dataset,
)
from axiograd.attribution.expected_gradients import ExpectedGradients as ExpectedGradients
from axiograd.attribution.gradient import Gradient as Gradient
from axiograd.attribution.held_gradient import (
    HeldCompleteness as HeldCompleteness,
    HeldGradient as HeldGradient,
)
from axiograd.attribution.input_x_gradient import InputXGradient as InputXGradient
from axiograd.attribution.integrated_gradients import IntegratedGradients as IntegratedGradients
from axiograd.attribution.log_gradient import LogGradient as LogGradient
from axiograd.attribution.methods import choose_method as choose_method
from axiograd.attribution.occlusion import Occlusion as Occlusion
from axiograd.attribution.quantus import quantus_explain as quantus_explain
from axiograd.attribution.random_attribution import RandomAttribution as RandomAttribution
from axiograd.attribution.results import Completeness as Completeness, Explanation as Explanation
from axiograd.attribution.saliency import Saliency as Saliency
from axiograd.attribution.sums import InexactWarning as InexactWarning
from axiograd.attribution.x_gradient import XGradient as XGradient
