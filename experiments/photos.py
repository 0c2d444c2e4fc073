"""Pretrained networks as they are and converted to X-DNNs, and the photos that they are judged by.

The quick form has one small network, regular and X, trained there and then on procedural shapes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset, default_collate

import axiograd
from axiograd.datasets import (
    CAFFE,
    IMAGENET,
    SQUEEZENET,
    TINY_IMAGENET,
    Preprocess,
    TensorData,
    imagenet_sample,
    shapes,
    tiny_imagenet,
)
from axiograd.demo.story import network as small_network, normalised
from axiograd.models import get_model
from experiments import loops

DATA = "500 ImageNet photos, probably training images"
#: Images that a network is converted with, and those that the calibrated form is fitted to, spread over the set.
CONVERTED, FITTED = 16, 48
STRIPPED, CALIBRATED = ("regular", "stripped", "lifted"), ("regular", "calibrated", "lifted")


@dataclass(frozen=True)
class Network:
    """A network in all of its forms; all but "regular" are X-DNNs."""

    label: str
    forms: tuple[str, ...]
    #: The paper's network with the same role.
    paper: str
    preprocess: Preprocess | None = None
    #: Class i of the images is output step·i of the network.
    step: int = 1


NETWORKS = {
    "small": Network("small network", ("regular", "X"), "AlexNet"),
    "squeezenet1_1": Network("SqueezeNet 1.1", STRIPPED, "AlexNet", SQUEEZENET),
    "mobilenet_v2": Network("MobileNetV2", STRIPPED, "VGG16", IMAGENET),
    "resnet18": Network("ResNet-18", STRIPPED, "ResNet-50", TINY_IMAGENET, step=10),
    "resnet50": Network("ResNet-50", CALIBRATED, "ResNet-50", CAFFE),
}


def forms(*names: str) -> Iterator[tuple[str, str]]:
    """Name and form of some networks, one by one."""
    return ((name, form) for name in names for form in NETWORKS[name].forms)


def title(name: str, form: str) -> str:
    return f"{NETWORKS[name].label}, {form}"


@cache
def images(name: str) -> Dataset:
    """The images that a network is judged by."""
    if name == "small":
        data = shapes("test", 200)
        return TensorDataset(normalised(data.inputs), data.targets)
    if name == "resnet18":
        return tiny_imagenet("val", transform=NETWORKS[name].preprocess)
    return imagenet_sample(transform=NETWORKS[name].preprocess)


def spread(n: int, m: int = CONVERTED) -> list[int]:
    """m of n images."""
    return [i * n // m for i in range(m)]


def order(name: str) -> list[int]:
    """The images in a random order; those that a form of the network was fitted to are not among them."""
    n = len(images(name))
    found = torch.randperm(n, generator=torch.Generator().manual_seed(0)).tolist()
    left_out = {*spread(n), *spread(n, FITTED)} if "calibrated" in NETWORKS[name].forms else set()
    return [i for i in found if i not in left_out]


def batches(name: str, indices: Sequence[int], size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Images, so many at a time, and the outputs that belong to their classes."""
    data, step = images(name), NETWORKS[name].step
    for start in range(0, len(indices), size):
        inputs, targets = default_collate([data[i] for i in indices[start : start + size]])
        yield inputs.to(memory_format=torch.channels_last), targets * step


@cache
def load(name: str, form: str) -> nn.Module:
    """A network in one of its forms; channels last, with which convolutions on a processor are twice as fast."""
    if name == "small":
        model = trained(form)
    else:
        model = get_model(name, weights="default").eval()
        if form != "regular":
            data = images(name)
            examples = {n: default_collate([data[i] for i in spread(len(data), n)])[0] for n in (CONVERTED, FITTED)}
            how = {"stripped": "strip", "calibrated": "calibrate", "lifted": "lift"}[form]
            fitted = examples[FITTED] if how == "calibrate" else None
            model = axiograd.to_xdnn(model, examples[CONVERTED], how=how, calibration=fitted).model
    return model.eval().requires_grad_(False).to(memory_format=torch.channels_last)


def trained(form: str) -> nn.Module:
    """The small network of the quick form."""
    data = shapes("train", 400)
    x = normalised(data.inputs)
    torch.manual_seed(0)
    model = small_network()
    if form != "regular":
        for layer in model:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.register_parameter("bias", None)
    adam = torch.optim.Adam(model.parameters(), 3e-3)
    of_batch = TensorData(x, data.targets, data.name)
    loops.train(of_batch, lambda x, y: F.cross_entropy(model(x), y), adam, epochs=4, batch=25, seed=0)
    return model
