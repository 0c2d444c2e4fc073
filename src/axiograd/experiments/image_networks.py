"""The image networks of the experiments and the images that each was made for, at the three scales.

Quick: a small network and its X variant, trained there and then on procedural shapes. Real: pretrained networks as they
are, stripped and lifted, on photos. Full: the paper's published checkpoints, regular and X, on ImageNet's validation
split.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

from axiograd.datasets import (
    CAFFE,
    IMAGENET,
    SQUEEZENET,
    TINY_IMAGENET,
    ImageFiles,
    Preprocess,
    TensorData,
    imagenet,
    imagenet_sample,
    shapes,
    tiny_imagenet,
)
from axiograd.demo.story import network as small_network
from axiograd.experiments.item import Scale, Setting
from axiograd.experiments.loop import batch_loss, train_epochs
from axiograd.homogeneity import to_xdnn
from axiograd.models import get_model

#: Images that a conversion is calibrated on, and those that the calibrated form is fitted to, spread over the set.
CALIBRATION, FITTED = 16, 48


@dataclass(frozen=True)
class Family:
    """A regular network, its X-DNNs, and what the paper calls its counterpart."""

    key: str
    label: str
    #: The names of its forms; all but "regular" are X-DNNs.
    forms: tuple[str, ...]
    #: The paper's network with the same role, where there is one.
    paper: str | None
    preprocess: Preprocess
    #: Class i of the images is output step·i of the network.
    step: int = 1

    def name(self, form: str) -> str:
        """As it is written in tables."""
        return f"{self.label}, {form}"


#: A strip whose weights were fitted to images.
CALIBRATED = "calibrated"
CONVERTED = ("regular", "stripped", "lifted")
PAIR = ("regular", "X")
FAMILIES: Mapping[Scale, tuple[Family, ...]] = {
    "quick": (Family("small", "small network", PAIR, "AlexNet", Preprocess(None, None, (0.5,) * 3, (0.25,) * 3)),),
    "real": (
        Family("squeezenet1_1", "SqueezeNet 1.1", CONVERTED, "AlexNet", SQUEEZENET),
        Family("mobilenet_v2", "MobileNetV2", CONVERTED, "VGG16", IMAGENET),
        Family("resnet18", "ResNet-18", CONVERTED, "ResNet-50", TINY_IMAGENET, step=10),
        Family("resnet50", "ResNet-50", ("regular", CALIBRATED, "lifted"), "ResNet-50", CAFFE),
    ),
    "full": (
        Family("alexnet", "AlexNet", PAIR, "AlexNet", IMAGENET),
        Family("vgg16", "VGG16", PAIR, "VGG16", IMAGENET),
        Family("fixup_resnet50", "Fixup-ResNet-50", PAIR, "ResNet-50", IMAGENET),
    ),
}


def in_alexnets_role(scale: Scale) -> tuple[Family, ...]:
    """Where the paper has AlexNet: SqueezeNet, and ResNet-50 beside it; at full scale its other networks too."""
    return FAMILIES[scale] if scale != "real" else (FAMILIES[scale][0], FAMILIES[scale][-1])


def in_figures(scale: Scale) -> tuple[Family, ...]:
    """As above, but at full scale AlexNet alone, as in the paper's figures."""
    return in_alexnets_role(scale)[: 1 if scale == "full" else None]


@dataclass(frozen=True)
class Quick:
    """How the quick form trains its small network on shapes."""

    train: int = 2000
    epochs: int = 8
    batch: int = 25
    learning_rate: float = 3e-3


QUICK = Quick()
#: Configurations of the paper's networks: as published.
PUBLISHED: Mapping[str, Mapping[str, Any]] = {"alexnet": {}, "vgg16": {}, "fixup_resnet50": {}}


class Shapes(Dataset[tuple[Tensor, Tensor]]):
    """Shapes as a network sees them: normalised, with their class."""

    def __init__(self, split: str, n: int, preprocess: Preprocess, seed: int) -> None:
        self.data: TensorData = shapes(split, n, seed=seed)
        self.inputs = preprocess.normalise(self.data.inputs)
        self.targets, self.name, self.classes = self.data.targets, self.data.name, self.data.names

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.targets[index]


Images = ImageFiles | Shapes


@lru_cache(maxsize=4)
def images(family: Family, setting: Setting) -> Images:
    """The images that a family is measured on."""
    if setting.scale == "quick":
        return Shapes("test", 200, family.preprocess, setting.seed)
    if setting.scale == "full":
        return imagenet("val", setting.full_scale()[0], transform=family.preprocess)
    if family.key == "resnet18":
        return tiny_imagenet("val", transform=family.preprocess)
    return imagenet_sample(transform=family.preprocess)


def order(data: Images, seed: int, n: int | None = None, family: Family | None = None) -> list[int]:
    """The first n images of a random order: a part of them is a sample of all classes.

    Those that a form of the family was fitted to are not among them.
    """
    found: list[int] = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed)).tolist()
    if family is not None and CALIBRATED in family.forms:
        left_out = set(calibrating(len(data)) + calibrating(len(data), FITTED))
        found = [i for i in found if i not in left_out]
    return found[:n]


def device() -> torch.device:
    """The accelerator of this process, where there is one."""
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    return torch.device("cpu")


def batch(data: Images, indices: Sequence[int], family: Family) -> tuple[Tensor, Tensor]:
    """Some images and the outputs that belong to their classes."""
    inputs, targets = default_collate([data[i] for i in indices])
    return inputs.to(device(), memory_format=torch.channels_last), targets.to(device()) * family.step


def batches(data: Images, indices: Sequence[int], family: Family, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """These images, so many at a time."""
    for start in range(0, len(indices), size):
        yield batch(data, indices[start : start + size], family)


def predicted(
    model: nn.Module, data: Images, indices: Sequence[int], family: Family
) -> Iterator[tuple[Tensor, Tensor]]:
    """These images one by one, each with the class that the network gives it."""
    for inputs, _ in batches(data, indices, family, 1):
        with torch.no_grad():
            yield inputs, model(inputs).argmax(1)


def calibrating(n: int, m: int = CALIBRATION) -> list[int]:
    """The images of n that conversions are calibrated on; none of them may judge what was converted."""
    return [i * n // m for i in range(m)]


@lru_cache(maxsize=8)
def network(family: Family, form: str, setting: Setting) -> nn.Module:
    """One form of a network, ready to be measured.

    Channels last: the same numbers to rounding, and convolutions on a processor twice as fast.
    """
    if setting.scale == "quick":
        found = trained(family, form, setting.seed)
    elif setting.scale == "full":
        name = family.key if form == "regular" else f"x{family.key}"
        found = get_model(name, weights="paper", root=setting.full_scale()[1], **PUBLISHED[family.key])
    else:
        found = get_model(family.key, weights="default").eval()
        if form != "regular":
            data = images(family, setting)
            example = default_collate([data[i] for i in calibrating(len(data))])[0]
            fitted = None
            if form == CALIBRATED:
                fitted = default_collate([data[i] for i in calibrating(len(data), FITTED)])[0]
            found = to_xdnn(found, example, how="lift" if form == "lifted" else "strip", calibration=fitted).model
    found.eval().requires_grad_(False).to(device())
    # Absent from torch's signatures, present in its documentation.
    return found.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def trained(family: Family, form: str, seed: int) -> nn.Module:
    """The small network of the quick form, trained on shapes."""
    data = Shapes("train", QUICK.train, family.preprocess, seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: nn.Module = small_network()
    if form != "regular":
        model = to_xdnn(model, data.inputs[:CALIBRATION], how="strip").model
    train_epochs(
        TensorData(data.inputs, data.targets, data.name),
        batch_loss(model),
        torch.optim.Adam(model.parameters(), QUICK.learning_rate),
        epochs=QUICK.epochs,
        batch=QUICK.batch,
        seed=seed,
    )
    return model


def described(setting: Setting) -> dict[str, Any]:
    """What the networks depend on, for the settings of an item."""
    if setting.scale == "quick":
        return {"seed": setting.seed, "trained_on": QUICK.train, "epochs": QUICK.epochs}
    if setting.scale == "full":
        return {"seed": setting.seed, "weights": "as published with the paper"}
    return {"seed": setting.seed, "calibration_images": CALIBRATION}
