"""The paper's numbers, transcribed once, each with its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Table 2, right half: mean absolute relative difference to Integrated Gradients in per cent (regular DNN, X-DNN).
TABLE2_DIFFERENCE: Mapping[str, tuple[float, float]] = {
    "AlexNet": (79.0, 1.2),
    "VGG16": (97.8, 0.4),
    "ResNet-50": (93.8, 0.0),
}

#: Table 2, left half: top-5 accuracy in per cent on ImageNet's validation split (regular DNN, X-DNN).
TABLE2_TOP5: Mapping[str, tuple[float, float]] = {
    "AlexNet": (79.21, 78.54),
    "VGG16": (90.44, 90.25),
    "ResNet-50": (92.56, 91.12),
}

#: Table 3: KPM, KNM, KAM, RAM of each method on AlexNet and on X-AlexNet.
TABLE3: Mapping[str, Mapping[str, tuple[float, float, float, float]]] = {
    "AlexNet": {
        "IG (128)": (7.57, 1.67, 25.22, 11.12),
        "Random": (3.68, 3.68, 14.12, 14.10),
        "Grad (1)": (3.62, 3.88, 20.78, 11.82),
        "EG (1)": (4.92, 2.97, 20.49, 13.76),
    },
    "X-AlexNet": {
        "IG (128)": (7.38, 2.21, 21.79, 11.68),
        "Random": (3.81, 3.81, 13.52, 13.50),
        "Grad (1)": (3.87, 4.34, 19.75, 11.25),
        "EG (1)": (5.41, 3.19, 19.47, 13.19),
        "X-Gradient (1)": (7.38, 2.21, 21.83, 11.68),
    },
}

#: Appendix, Convergence of Integrated Gradients: the number of steps after which the authors see none.
FIG3_CONVERGED = 128

#: Section 4.4 and Figure 2 (right): the contrast of the second image.
FIG2_LOW_CONTRAST = 0.3


@dataclass(frozen=True)
class Efficiency:
    """Appendix, Training with attribution priors: a step on ResNet-50 with a batch of two, on an A100."""

    eg_seconds: float = 1.12
    x_gradient_seconds: float = 0.0086
    eg_gigabytes: float = 14.57
    x_gradient_gigabytes: float = 4.21
    time_ratio: float = 130
    memory_ratio: float = 3.46


EFFICIENCY = Efficiency()
