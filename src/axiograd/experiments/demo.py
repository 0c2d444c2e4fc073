"""The demonstration: a network that decides for the wrong reason, found and fixed."""

from __future__ import annotations

import platform
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axiograd._io import write_atomically
from axiograd._version import __version__
from axiograd.attribution import Completeness, IntegratedGradients, XGradient
from axiograd.datasets import TensorData, shapes
from axiograd.experiments.loop import accuracy as share_correct
from axiograd.homogeneity import Certificate, Conversion, certify, to_xdnn
from axiograd.priors import RightReasons
from axiograd.training.loss import AttributionLoss

Progress = Callable[[int, int], None]

#: Strength of the prior; the learning rate and the batch of all three trainings.
WEIGHT, LEARNING_RATE, BATCH = 1.0, 3e-3, 50
#: Shapes so faint that the tag is the easier thing to learn.
CONTRAST = 0.45


@dataclass(frozen=True)
class Accuracy:
    """Per cent correct where the tag tells the class, and where it is random."""

    tagged: float
    random_tag: float


@dataclass(frozen=True)
class Speed:
    """X-Gradient against Integrated Gradients with 128 steps, on the same inputs."""

    relative_difference: float
    x_gradient_seconds: float
    integrated_gradients_seconds: float

    @property
    def ratio(self) -> float:
        """How many times faster one backward pass is."""
        return self.integrated_gradients_seconds / self.x_gradient_seconds


@dataclass(frozen=True)
class Result:
    """The numbers of all steps."""

    command: str
    accuracies: Mapping[str, Accuracy]
    #: Per cent of the attribution that lies on the tag.
    on_tag: Mapping[str, float]
    speed: Speed
    completeness: Completeness

    def to_dict(self) -> dict[str, object]:
        """For JSON, with what is needed to repeat it."""
        return {
            "command": self.command,
            "data": "procedural shapes with a tag as a shortcut",
            "versions": {"axiograd": __version__, "torch": torch.__version__, "python": platform.python_version()},
            "accuracy_percent": {name: asdict(accuracy) for name, accuracy in self.accuracies.items()},
            "attribution_on_tag_percent": dict(self.on_tag),
            "difference_to_integrated_gradients_128": self.speed.relative_difference,
            "times_faster_than_integrated_gradients_128": self.speed.ratio,
            "completeness_error_relative_max": float(self.completeness.relative.max()),
        }


@dataclass(frozen=True)
class Data:
    """Images less mid-grey, so that the zero baseline is a grey image."""

    train: TensorData
    tagged: TensorData
    random_tag: TensorData

    @classmethod
    def make(cls, n: int, seed: int) -> Data:
        """Training images with a tag that gives the class away; test images with it, and with a random one."""
        return cls(
            shapes("train", n, shortcut="class", contrast=CONTRAST, seed=seed),
            shapes("test", n // 4, shortcut="class", contrast=CONTRAST, seed=seed),
            shapes("test", n // 4, shortcut="random", contrast=CONTRAST, seed=seed),
        )


def normalised(images: Tensor) -> Tensor:
    """Zero is mid-grey, one standard deviation of the data about one."""
    return (images - 0.5) / 0.25


def network() -> nn.Sequential:
    """A small convolutional network with biases, as everybody builds it."""
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(3, 16, 5, stride=2, padding=2),
        "relu1": nn.ReLU(),
        "conv2": nn.Conv2d(16, 32, 3, padding=1),
        "relu2": nn.ReLU(),
        "pool2": nn.MaxPool2d(2),
        "conv3": nn.Conv2d(32, 64, 3, padding=1),
        "relu3": nn.ReLU(),
        "pool3": nn.MaxPool2d(2),
        "conv4": nn.Conv2d(64, 64, 3, padding=1),
        "relu4": nn.ReLU(),
        "pool4": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "classes": nn.Linear(64, 4),
    }
    return nn.Sequential(OrderedDict(layers))


def accuracy(model: nn.Module, data: Data) -> Accuracy:
    """Measured on both test sets."""
    tests = (replace(test, inputs=normalised(test.inputs)) for test in (data.tagged, data.random_tag))
    return Accuracy(*(share_correct(model, test, 250) for test in tests))


def train(model: nn.Module, data: TensorData, epochs: int, *, prior_weight: float, progress: Progress) -> None:
    """Adam with a one-cycle schedule; with a weight, attributions on the tag are penalised for what is wrong."""
    loss = AttributionLoss(F.cross_entropy, RightReasons(), weight=prior_weight, outputs="residual")
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    total = epochs * -(-len(data) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=total)
    for epoch in range(epochs):
        for x, y, _, tag in data.batches(BATCH, seed=epoch):
            images = normalised(x)
            plain = not prior_weight
            value = F.cross_entropy(model(images), y) if plain else loss(model, images, y, mask=tag).total
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            schedule.step()
            progress(schedule.last_epoch, total)


def refused(model: nn.Module, data: Data) -> Certificate:
    """The certificate of the regular network."""
    return certify(model, normalised(data.tagged.inputs[:8]))


def converted(model: nn.Module, data: Data) -> Conversion:
    """The same network as an X-DNN."""
    return to_xdnn(model, normalised(data.train.inputs[:64]), how="strip")


def compare(model: nn.Module, data: Data, n: int = 32) -> Speed:
    """X-Gradient and Integrated Gradients with 128 steps, side by side."""
    x, y = normalised(data.tagged.inputs[:n]), data.tagged.targets[:n]
    x_gradient, integrated = XGradient(model), IntegratedGradients(model, n_steps=128)
    x_gradient.attribute(x, y)  # certified, and warm

    def timed(method: XGradient | IntegratedGradients) -> tuple[Tensor, float]:
        start = time.perf_counter()
        found = method.attribute(x, y)
        return found, time.perf_counter() - start

    exact, fast = min((timed(x_gradient) for _ in range(3)), key=lambda pair: pair[1])
    approximate, slow = timed(integrated)
    difference = float((exact - approximate).abs().max() / approximate.abs().max())
    return Speed(difference, fast, slow)


def completeness(model: nn.Module, data: Data, n: int = 32) -> Completeness:
    """Whether the attributions add up to the outputs."""
    return XGradient(model).completeness(normalised(data.tagged.inputs[:n]), data.tagged.targets[:n])


def share_on_tag(model: nn.Module, data: TensorData, n: int = 200) -> float:
    """The part of all attribution, in magnitude, that lies on the tag, in per cent."""
    attributions = XGradient(model).attribute(normalised(data.inputs[:n]), data.targets[:n]).abs()
    return 100 * float((attributions * data.per_sample()["shortcuts"][:n]).sum() / attributions.sum())


def save_attributions(path: Path, data: Data, models: Mapping[str, nn.Module], n: int = 16) -> None:
    """Test images, their classes, and each model's exact attributions, as one safetensors file."""
    from safetensors.torch import save

    images, classes = data.tagged.inputs[:n], data.tagged.targets[:n]
    exact = {f"attributions_{name}": XGradient(m).attribute(normalised(images), classes) for name, m in models.items()}
    write_atomically(path, save({"images": images.contiguous(), "classes": classes.contiguous(), **exact}))
