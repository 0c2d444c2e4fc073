"""Table 2, trained from scratch: AlexNet-, VGG- and Fixup-ResNet-type networks, regular and X, on small images.

The two of a pair share recipe, seed and order of the data; the schedule is one cycle. AlexNet and VGG11 are trained
with Adam, at a learning rate chosen for the regular networks; VGG11 begins with weights that keep signals as large as
they are, because its published ones begin too small for so few steps and this width. Fixup-ResNet-20 is trained as
its authors do, with SGD at 0.1 and a tenth of it for biases and scales, but with gradients clipped to norm 1, without
which the regular one may diverge; Adam was two points worse on training images that were held out.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axiograd.attribution import InputXGradient, IntegratedGradients, XGradient
from axiograd.datasets import TensorData, fashion_mnist, shapes, tiny_imagenet
from axiograd.experiments.loop import accuracy, train_epochs
from axiograd.metrics import mean_absolute_relative_difference
from axiograd.models import get_model
from axiograd.training import Recipe

BATCH, WEIGHT_DECAY, IG_STEPS = 64, 1e-4, 128
#: Contrasts of Figure 2, left.
CONTRASTS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
N_CONTRAST = 1000


@dataclass(frozen=True)
class Pair:
    """A pair of networks from one definition, and what the paper's counterpart is called."""

    label: str
    model: str
    config: Mapping[str, Any]
    paper: str
    optimizer: Literal["adam", "sgd"]
    learning_rate: float
    scalar_lr_factor: float = 1.0
    clip: float | None = None
    he: bool = False

    @property
    def recipe(self) -> str:
        """How it is trained, in words."""
        words = [f"{self.optimizer} at {self.learning_rate:g}, one cycle"]
        words += [f"biases and scales at {self.scalar_lr_factor:g} of it"] if self.scalar_lr_factor != 1 else []
        words += [f"gradients clipped to norm {self.clip:g}"] if self.clip is not None else []
        words += ["weights begin as He et al.'s"] if self.he else []
        return ", ".join(words)


NETWORKS: Mapping[str, Pair] = {
    "alexnet": Pair(
        "AlexNet, ¼ of the channels",
        "alexnet",
        {"small": True, "width": 0.25, "hidden": 256, "pool": 3, "dropout": 0.2},
        "AlexNet",
        "adam",
        2e-3,
    ),
    "vgg11": Pair(
        "VGG11, ¼ of the channels",
        "vgg11",
        {"small": True, "width": 0.25, "hidden": 256, "pool": 1, "dropout": 0.2},
        "VGG16",
        "adam",
        2e-3,
        he=True,
    ),
    "fixup_resnet20": Pair(
        "Fixup-ResNet-20, ½ of the channels", "fixup_resnet20", {"width": 0.5}, "ResNet-50", "sgd", 0.1, 0.1, 1.0
    ),
}


@dataclass(frozen=True)
class Table2Task:
    """Images to train on and to judge by, and for how long."""

    train: TensorData
    test: TensorData
    epochs: int
    #: Whether the mirror image has the same class.
    flips: bool


@functools.cache
def load(name: str) -> Table2Task:
    """Fashion-MNIST (20,000 images, or all), Tiny ImageNet of half the size, or shapes; normalised per channel."""
    if name.startswith("fashion-mnist"):
        train = fashion_mnist("train")
        train = train if name.endswith("all") else train.select(slice(20_000))
        return _normalised(train, fashion_mnist("test"), epochs=4, flips=True)
    if name == "tiny-imagenet":
        return _normalised(_tiny("train"), _tiny("val"), epochs=8, flips=True)
    return _normalised(shapes("train", 256), shapes("test", 128), epochs=8, flips=False)


def _normalised(train: TensorData, test: TensorData, *, epochs: int, flips: bool) -> Table2Task:
    mean, std = train.inputs.mean((0, 2, 3), keepdim=True), train.inputs.std((0, 2, 3), keepdim=True)
    made = [TensorData((data.inputs - mean) / std, data.targets, data.name, data.names) for data in (train, test)]
    return Table2Task(made[0], made[1], epochs, flips)


def _tiny(split: str) -> TensorData:
    data = tiny_imagenet(split).load()
    return replace(data, inputs=F.avg_pool2d(data.inputs, 2), name=f"{data.name}, 32 px", boxes=None)


def flip(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Half of the images mirrored."""
    return torch.where((torch.rand(len(x)) < 0.5)[:, None, None, None], x.flip(-1), x), y  # noqa: PLR2004


def build(network: Pair, task: Table2Task, *, homogeneous: bool) -> nn.Module:
    """One of the two networks of a pair, for the images of a task."""
    model = get_model(
        f"x{network.model}" if homogeneous else network.model,
        num_classes=len(task.train.names),
        in_channels=task.train.inputs.shape[1],
        **network.config,
    )
    if network.he:
        he_(model)
    return model


def train(network: Pair, task: Table2Task, *, homogeneous: bool, seed: int, n_compared: int) -> dict[str, Any]:
    """Train one network in one cycle, and judge it."""
    torch.manual_seed(seed)
    model = build(network, task, homogeneous=homogeneous)
    recipe = Recipe(
        network.optimizer,
        network.learning_rate,
        weight_decay=WEIGHT_DECAY,
        scalar_lr_factor=network.scalar_lr_factor,
    )
    seconds = train_epochs(
        task.train,
        lambda x, y: F.cross_entropy(model(x), y),
        recipe.build_optimizer(model.named_parameters()),
        epochs=task.epochs,
        batch=BATCH,
        seed=seed,
        augment=flip if task.flips else None,
        clip=network.clip,
    )
    return judge(model, task, homogeneous=homogeneous, n_compared=n_compared) | {"seconds_per_epoch": min(seconds)}


def judge(model: nn.Module, task: Table2Task, *, homogeneous: bool, n_compared: int) -> dict[str, Any]:
    """Accuracies in per cent, at full and at lower contrast, and the difference to IG(128)."""
    model.eval()
    return {
        "top1": accuracy(model, task.test),
        "top5": top5(model, task.test),
        "contrast": contrast(model, task.test.select(slice(N_CONTRAST)), CONTRASTS),
        **difference(model, task.test.inputs[:n_compared], homogeneous=homogeneous),
    }


def he_(model: nn.Module) -> None:
    """Normal weights of std √(2 / fan_in): what a layer with a ReLU passes on is as large as what it gets.

    >>> model = nn.Linear(1000, 500, bias=False)
    >>> he_(model)
    >>> round(float(model.weight.detach().std()) ** 2 * 1000, 1)
    2.0
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")


@torch.no_grad()
def top5(model: nn.Module, data: TensorData) -> float:
    """Per cent with the right class among the first five."""
    k = min(5, len(data.names))
    hits = [(model(x).topk(k, 1).indices == y[:, None]).any(1) for x, y in data.batches(1000)]
    return 100 * float(torch.cat(hits).float().mean())


def contrast(model: nn.Module, data: TensorData, factors: Sequence[float]) -> list[float]:
    """Top-1 accuracy of αx for each α."""
    return [accuracy(model, replace(data, inputs=alpha * data.inputs)) for alpha in factors]


def difference(model: nn.Module, images: Tensor, *, homogeneous: bool) -> dict[str, float]:
    """Table 2's mean absolute relative difference to Integrated Gradients in per cent, for the predicted class."""
    with torch.no_grad():
        predicted = model(images).argmax(1)
    single = (XGradient if homogeneous else InputXGradient)(model).attribute(images, predicted)
    integrated = IntegratedGradients(model, IG_STEPS, internal_batch_size=500).attribute(images, predicted)
    found = mean_absolute_relative_difference(single, integrated)
    return {"difference": 100 * found.value, "difference_plain": 100 * found.plain}
