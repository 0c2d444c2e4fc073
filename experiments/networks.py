"""Small networks trained from scratch in three forms, by the paper's recipes for fewer epochs, and remembered."""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import axiograd
from axiograd.datasets import TensorData, fashion_mnist, shapes, tiny_imagenet
from axiograd.models import get_model
from experiments import lab

FORMS = ("regular", "strict X", "carried")
BATCH = 64
#: Of 100 epochs, after which the paper's AlexNet and VGG are trained at a tenth of their learning rate.
STEP = 0.3
SMALL = {"small": True, "width": 0.25, "hidden": 256, "dropout": 0.2}

#: Builders with the settings of each network; a ResNet with BatchNorm has no strict form of its own.
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "Fixup-ResNet-20, half width": ("fixup_resnet20", {"width": 0.5}),
    "AlexNet, quarter width": ("alexnet", {**SMALL, "pool": 3}),
    "VGG11, quarter width": ("vgg11", {**SMALL, "pool": 1}),
    "ResNet-18 with BatchNorm, width 16": ("resnet18", {"width": 16, "kernel": 3, "stride": 1, "pool": False}),
}

#: What is left of the shifts and scales of a Fixup-ResNet, by their names, in forms between regular and strict X.
PARTS: dict[str, tuple[str, ...]] = {
    "scales only": ("scale",),
    "shifts only": ("bias1", "bias2", "bias1a", "bias1b", "bias2a", "bias2b", "bias"),
    "shifts before convolutions only": ("bias1a", "bias2a"),
    "shifts before ReLUs only": ("bias1", "bias1b", "bias2b"),
    "classifier's bias only": ("bias2", "bias"),
}


@cache
def images(data: str) -> tuple[TensorData, TensorData]:
    """Training and test images, normalised per channel; Tiny ImageNet at half its resolution."""
    if data == "Tiny ImageNet, 20 classes":
        train, test = (tiny_imagenet(split).load() for split in ("train", "val"))
        pairs = [(F.avg_pool2d(found.inputs, 2), found) for found in (train, test)]
    elif data == "Fashion-MNIST":
        pairs = [(found.inputs, found) for found in (fashion_mnist("train"), fashion_mnist("test"))]
    else:
        pairs = [(found.inputs, found) for found in (shapes("train", 256), shapes("test", 128))]
    mean, std = pairs[0][0].mean((0, 2, 3), keepdim=True), pairs[0][0].std((0, 2, 3), keepdim=True)
    train, test = (TensorData((x - mean) / std, found.targets, found.name, found.names) for x, found in pairs)
    return train, test


def build(network: str, form: str, data: str) -> nn.Module:
    """A network with its first weights, which depend on torch's seed."""
    if form in PARTS:
        model = build(network, "regular", data)
        for module in model.modules():
            for name, _ in list(module.named_parameters(recurse=False)):
                if name != "weight" and name not in PARTS[form]:
                    module.register_parameter(name, None)
        return model
    name, settings = NETWORKS[network]
    train, _ = images(data)
    sizes = {"num_classes": len(train.names), "in_channels": train.inputs.shape[1]}
    if name == "resnet18":
        model = get_model(name, **sizes, **settings)
        return model if form == "regular" else axiograd.to_xdnn(model, train.inputs[:64], how=_HOW[form]).model
    carried = {"biases": "carried"} if form == "carried" else {}
    model = get_model(name if form == "regular" else f"x{name}", **sizes, **settings, **carried)
    if name == "vgg11":  # published weights begin too small for this width and so few steps
        for module in model.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return model


_HOW = {"strict X": "strip", "carried": "carry"}


@lab.remember
def trained(network: str, form: str, data: str, epochs: int, seed: int) -> dict[str, Any]:
    """Weights after training, and the training loss of each epoch.

    ResNets by SGD at 0.1 with a cosine and mixup 0.7, Fixup's biases and scales at a tenth of the rate; AlexNet and VGG
    by SGD at 0.01, a tenth of it after each 30 % of the epochs. Half of the images are mirrored.
    """
    train, _ = images(data)
    torch.manual_seed(seed)
    model = build(network, form, data).to(memory_format=torch.channels_last)  # faster on a processor
    residual, fixup = "ResNet" in network, "Fixup" in network
    rate = 0.1 if residual else 0.01
    groups: dict[bool, list[nn.Parameter]] = {False: [], True: []}
    for name, parameter in model.named_parameters():
        groups[fixup and not name.endswith("weight")].append(parameter)
    rated = [{"params": found, "lr": 0.1 * rate if slow else rate} for slow, found in groups.items() if found]
    optimizer = torch.optim.SGD(rated, momentum=0.9, weight_decay=1e-4)
    steps = epochs * math.ceil(len(train) / BATCH)
    factor: Callable[[int], float] = partial(_cosine, steps=steps) if residual else partial(_stairs, steps=steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    rng, losses = np.random.default_rng(seed), []
    for epoch in range(epochs):
        total = 0.0
        for x, y in train.batches(BATCH, seed=1000 * seed + epoch):
            share = float(rng.beta(0.7, 0.7)) if residual else 1.0
            mirrored = torch.from_numpy(rng.random(len(x)) < 0.5)[:, None, None, None]
            other = torch.from_numpy(rng.permutation(len(x)))
            x = torch.where(mirrored, x.flip(-1), x)  # noqa: PLW2901
            outputs = model(share * x + (1 - share) * x[other])
            loss = share * F.cross_entropy(outputs, y) + (1 - share) * F.cross_entropy(outputs, y[other])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) * len(x)
        losses.append(total / len(train))
    return {"state": {key: value.numpy() for key, value in model.state_dict().items()}, "loss": losses}


def _cosine(step: int, steps: int) -> float:
    return 0.5 * (1 + math.cos(math.pi * step / steps))


def _stairs(step: int, steps: int) -> float:
    return 0.1 ** int(step / (STEP * steps))


def load(network: str, form: str, data: str, epochs: int, seed: int) -> nn.Module:
    """A trained network, in eval mode."""
    state = trained(network, form, data, epochs, seed)["state"]
    torch.manual_seed(seed)
    model = build(network, form, data)
    model.load_state_dict({key: torch.as_tensor(value) for key, value in state.items()})
    return model.eval().requires_grad_(False)


@torch.no_grad()
def logits(model: nn.Module, inputs: Tensor) -> Tensor:
    return torch.cat([model(x) for x in inputs.split(500)])
