"""Table 2 for networks that exist: the published ones at full scale, pretrained ones converted, and a distillation.

Converted networks are measured on half of their images. A short distillation from the original, without labels, is on
the other half (ResNet-18: on images of Tiny ImageNet's training split).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from axiograd.datasets import tiny_imagenet
from axiograd.experiments import image_networks
from axiograd.experiments.chunks import Chunk
from axiograd.experiments.image_networks import Family
from axiograd.experiments.item import Setting
from axiograd.training import Recipe
from axiograd.training.distill import distill

BATCH = 20
#: Images of the training split that ResNet-18 is distilled on.
N_TINY = 1000
RECIPE = Recipe(optimizer="adam", lr=2e-4, weight_decay=0.0, schedule="cosine", epochs=4, batch_size=16)


def published(family: Family, form: str, chunk: Chunk, setting: Setting) -> dict[str, Any]:
    """Hits among some images of ImageNet's validation split."""
    return hits(image_networks.network(family, form, setting), family, chunk.indices, setting)


def converted(family: Family, form: str, setting: Setting, *, distilled: bool) -> dict[str, Any]:
    """Hits of one form among half of the images, after a distillation or without."""
    judged, other = halves(family, setting)
    network = image_networks.network(family, form, setting)
    if not distilled:
        return hits(network, family, judged, setting)
    with torch.random.fork_rng():
        torch.manual_seed(setting.seed)
        network = network.requires_grad_(True)
        try:
            taught = teaching(family, other, setting)
            teacher = image_networks.network(family, "regular", setting)
            distill(network, teacher, taught, recipe=RECIPE, seed=setting.seed, accelerator="cpu", progress=False)
            return hits(network.eval(), family, judged, setting)
        finally:
            # The network that others get must be the one without distillation.
            image_networks.network.cache_clear()


def halves(family: Family, setting: Setting) -> tuple[list[int], list[int]]:
    """Images to judge by, and the others."""
    order = image_networks.order(image_networks.images(family, setting), setting.seed)
    return order[: len(order) // 2], order[len(order) // 2 :]


@lru_cache(maxsize=1)
def _tiny(family: Family, seed: int) -> Tensor:
    data = tiny_imagenet("train", transform=family.preprocess)
    return torch.stack([data[i][0] for i in image_networks.order(data, seed, N_TINY)])


def teaching(family: Family, other: list[int], setting: Setting) -> Tensor:
    """The images that a network is distilled on."""
    if family.key == "resnet18":
        return _tiny(family, setting.seed)
    data = image_networks.images(family, setting)
    return torch.stack([data[i][0] for i in other])


@torch.no_grad()
def hits(model: nn.Module, family: Family, indices: tuple[int, ...] | list[int], setting: Setting) -> dict[str, Any]:
    """How many of some images have their class first, and among the first five."""
    data = image_networks.images(family, setting)
    first, among = 0, 0
    for start in range(0, len(indices), BATCH):
        inputs, targets = image_networks.batch(data, indices[start : start + BATCH], family)
        outputs = model(inputs)
        right = outputs.topk(min(5, outputs.shape[1]), 1).indices == targets[:, None]
        first, among = first + int(right[:, 0].sum()), among + int(right.sum())
    return {"top1": first, "top5": among, "images": len(indices)}
