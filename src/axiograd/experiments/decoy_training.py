"""One training of the decoy experiment: the network, the methods, and the loop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axiograd.attribution import contextual_decomposition
from axiograd.datasets import TensorData
from axiograd.experiments.confounded import Confounded
from axiograd.experiments.loop import PriorOn, accuracy, batch_loss, train_epochs
from axiograd.priors import RightReasons
from axiograd.training.loss import AttributionLoss
from axiograd.training.targets import Outputs

BATCH, LEARNING_RATE = 128, 3e-3
#: Not an attribution to features: the prior is on what the masked region contributes, as a whole.
CDEP = "contextual-decomposition"


@dataclass(frozen=True)
class DecoyMethod(PriorOn):
    """A row of the table: which network, on which images, and how its λ is found."""

    outputs: Outputs = "random"
    clean: bool = False
    #: The method whose λ is taken.
    weight_of: str | None = None
    subset_only: bool = False
    #: At most so many seeds.
    seeds: int = 5

    @property
    def cost(self) -> int:
        """Passes of a training step, roughly."""
        return 1 if self.attribution is None else 1 + 2 * self.steps


METHODS = {
    "clean": DecoyMethod("clean training", clean=True),
    "clean-x": DecoyMethod("clean training", homogeneous=True, clean=True),
    "none": DecoyMethod("no prior"),
    "none-x": DecoyMethod("no prior", homogeneous=True),
    "rrr": DecoyMethod("RRR (log-gradient)", attribution="log-gradient", outputs=None),
    "gradient": DecoyMethod("Gradient", attribution="gradient"),
    "gradient-x": DecoyMethod("Gradient", homogeneous=True, attribution="gradient"),
    "input-x-gradient": DecoyMethod("Input × Gradient", attribution="input-x-gradient"),
    "eg1": DecoyMethod("Expected Gradients (1)", attribution="expected-gradients"),
    "cdep": DecoyMethod("CDEP (contextual decomposition)", attribution=CDEP, seeds=3),
    "x-gradient": DecoyMethod("X-Gradient", homogeneous=True, attribution="x-gradient"),
    "x-gradient-target": DecoyMethod(
        "X-Gradient, true class only", homogeneous=True, attribution="x-gradient", outputs="target"
    ),
    "x-gradient-residual": DecoyMethod(
        "X-Gradient, residual", homogeneous=True, attribution="x-gradient", outputs="residual"
    ),
    "eg32": DecoyMethod(
        "Expected Gradients (32)",
        attribution="expected-gradients",
        steps=32,
        weight_of="eg1",
        subset_only=True,
    ),
    "ig32": DecoyMethod(
        "Integrated Gradients (32)",
        attribution="integrated-gradients",
        steps=32,
        weight_of="x-gradient",
        subset_only=True,
    ),
}


def network(channels: int, classes: int, *, homogeneous: bool) -> nn.Sequential:
    """Two convolutions and a linear layer; without biases it is an X-DNN.

    Pixels become channels in squares of two by two, which costs less than a strided convolution, above all in the
    second derivatives that a prior needs.

    >>> model = network(1, 10, homogeneous=True)
    >>> x = torch.rand(2, 1, 28, 28)
    >>> torch.allclose(model(3 * x), 3 * model(x), rtol=1e-4, atol=1e-6)
    True
    """
    bias = not homogeneous
    return nn.Sequential(
        nn.PixelUnshuffle(2),
        nn.Conv2d(4 * channels, 16, 3, padding=1, bias=bias),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=bias),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 49, classes, bias=bias),
    )


def fitted(
    method: DecoyMethod, weight: float, images: TensorData, *, epochs: int, seed: int
) -> tuple[nn.Sequential, list[float]]:
    """One network after Adam with a one-cycle schedule, and the processor seconds of each epoch."""
    torch.manual_seed(seed)
    model = network(images.inputs.shape[1], int(images.targets.max()) + 1, homogeneous=method.homogeneous)
    loss = batch_loss(model, objective(method, weight, images))
    if method.attribution == CDEP:
        loss = partial(cdep_loss, model, weight=weight)
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    return model, train_epochs(images, loss, optimizer, epochs=epochs, batch=BATCH, seed=seed)


def train(method: DecoyMethod, weight: float, data: Confounded, *, n: int, epochs: int, seed: int) -> dict[str, float]:
    """Train one network; accuracies in per cent, processor seconds per epoch."""
    images = (data.clean_train if method.clean else data.train).select(slice(n))
    model, seconds = fitted(method, weight, images, epochs=epochs, seed=seed)
    return {
        "val": accuracy(model, data.clean_val if method.clean else data.val),
        "test": accuracy(model, data.test),
        "clean_test": accuracy(model, data.clean_test),
        "seconds_per_epoch": min(seconds),  # the first also certifies
    }


def cdep_loss(model: nn.Module, x: Tensor, y: Tensor, wrong: Tensor, weight: float) -> Tensor:
    """Cross-entropy + λ · mean over samples of ‖β‖₁, what the masked features contribute to all outputs; one pass.

    Rieger et al., 2020: the objective of CDEP with a wanted score of 0.
    """
    region, rest = contextual_decomposition(model, x, wrong)
    return F.cross_entropy(region + rest, y) + weight * region.abs().sum(1).mean()


def objective(method: DecoyMethod, weight: float, images: TensorData) -> AttributionLoss | None:
    """The loss with the method's attributions in the prior; None without any, and for CDEP, which has its own."""
    return None if method.attribution == CDEP else method.loss(RightReasons(), weight, images.inputs)
