"""The multilayer perceptron of the paper's NHANES experiment, regular and X from one definition."""

from collections.abc import Sequence
from itertools import pairwise

import torch  # noqa: F401  (used by the worked example)
from torch import nn


class MLP(nn.Sequential):
    """Linear, ReLU, …, Linear with the paper's 118-512-128-32-1 by default; `homogeneous=True` has no bias.

    >>> model = MLP(num_classes=1, in_channels=118, homogeneous=True)
    >>> [tuple(p.shape) for p in model.parameters()]
    [(512, 118), (128, 512), (32, 128), (1, 32)]
    >>> x = torch.randn(2, 118)
    >>> torch.allclose(model(3 * x), 3 * model(x), atol=1e-5)
    True
    """

    def __init__(
        self,
        num_classes: int = 1,
        in_channels: int = 118,
        *,
        homogeneous: bool = False,
        hidden: Sequence[int] = (512, 128, 32),
        dropout: float = 0.0,
    ) -> None:
        layers: list[nn.Module] = []
        for before, after in pairwise((in_channels, *hidden, num_classes)):
            if layers:
                layers += [nn.ReLU(), nn.Dropout(dropout)] if dropout else [nn.ReLU()]
            layers.append(nn.Linear(before, after, bias=not homogeneous))
        super().__init__(*layers)
