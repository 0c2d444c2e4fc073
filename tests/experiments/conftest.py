"""Items in their smallest shape: networks that are hardly trained, a few images, and ImageNet in miniature."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from axiograd.datasets import Preprocess
from axiograd.experiments import difference, fig2_left, fig3, image_networks, panels, table3
from axiograd.experiments.item import Setting
from axiograd.experiments.reproduce import find, run
from axiograd.models import get_model
from support.checkpoints import TINY, publish, randomise

#: Images in a piece, and in all.
FEW = (2, 3)


@pytest.fixture
def small(monkeypatch):
    """Few images and few steps, at every scale."""
    clear()
    monkeypatch.setattr(image_networks, "QUICK", image_networks.Quick(train=50, epochs=1))
    sizes = dict.fromkeys(("quick", "real", "full"), FEW)
    for module in (table3, difference, fig3):
        monkeypatch.setattr(module, "SIZES", sizes)
    monkeypatch.setattr(fig2_left, "SIZES", {"quick": 100, "full": 2})
    monkeypatch.setattr(panels, "STEPS", 8)
    for module in (table3, difference):
        monkeypatch.setattr(module, "STEPS", 8)
    monkeypatch.setattr(fig3, "STEPS", (1, 4))
    monkeypatch.setattr(fig3, "REFERENCE", 32)
    yield
    clear()


def clear():
    image_networks.images.cache_clear()
    image_networks.network.cache_clear()


@pytest.fixture
def quick(small, tmp_path):
    """Run an item in its quick form."""
    return lambda name, **options: run(find(name), Setting("quick"), tmp_path, command="test", **options)


@pytest.fixture
def miniature(small, monkeypatch, tmp_path):
    """A tree like ImageNet's with three classes, and the six published checkpoints of tiny networks."""
    random = np.random.default_rng(0)
    for wnid in ("n02123045", "n01440764", "n03063599"):
        folder = tmp_path / "imagenet" / "val" / wnid
        folder.mkdir(parents=True)
        Image.fromarray(random.integers(0, 256, (80, 70, 3), dtype=np.uint8)).save(folder / "0.JPEG")
    (tmp_path / "weights").mkdir()
    torch.manual_seed(0)
    for name, config in TINY.items():
        publish(randomise(get_model(name, **config)), tmp_path / "weights" / f"{name}_model_best.pth.tar")
    # What the checkpoints say of themselves is that they are of the published size; these are not.
    monkeypatch.setattr(image_networks, "PUBLISHED", {name: TINY[name] for name in image_networks.PUBLISHED})
    families = tuple(
        replace(family, preprocess=Preprocess(resize=64, crop=64)) for family in image_networks.FAMILIES["full"]
    )
    monkeypatch.setitem(image_networks.FAMILIES, "full", families)
    return Setting("full", 0, tmp_path / "imagenet", tmp_path / "weights")


@pytest.fixture
def full(miniature, tmp_path):
    """Run an item at full scale, in miniature."""
    return lambda name: run(find(name), miniature, tmp_path / "results", command="test")
