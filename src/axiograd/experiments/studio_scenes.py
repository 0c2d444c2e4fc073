"""Where the studio's experiments play: images with a shortcut, and networks that have learnt it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axiograd.datasets import Preprocess, TensorData, shapes
from axiograd.datasets.marked import Pictures
from axiograd.datasets.transforms import PIXELS
from axiograd.experiments.confounded import Confounded, load
from axiograd.experiments.decoy_training import network
from axiograd.experiments.loop import train_epochs
from axiograd.studio import demo
from axiograd.studio.network import become_xdnn


@dataclass(frozen=True)
class Scene:
    """Training images whose shortcut tells the class, test images whose shortcut tells nothing; pixels in [0, 1]."""

    train: TensorData
    test: TensorData
    #: An X-DNN that has learnt the shortcut, by its seed.
    learnt: Callable[[int], nn.Module]
    transform: Preprocess = PIXELS

    def pictures(self, data: TensorData) -> Pictures:
        """As the studio has them."""
        return Pictures.of_tensors(TensorData(data.inputs, data.targets, data.name), self.transform)

    def judged(self) -> TensorData:
        """The test images as the network takes them."""
        return replace(self.test, inputs=self.pictures(self.test).normalise(self.test.inputs))


@cache
def images(name: str) -> Confounded:
    """A confounded set, once for all pieces."""
    return load(name, n_val=1000)


def decoyed(name: str, n: int, epochs: int) -> Scene:
    """The first n images of a set with decoy patches, and the small network of the decoy experiment."""
    data = images(name)
    train = data.train.select(slice(n))

    def learnt(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        model = network(data.channels, data.classes, homogeneous=True)
        return trained(model, train, epochs, seed)

    return Scene(train, data.test, learnt)


def trained(model: nn.Module, data: TensorData, epochs: int, seed: int) -> nn.Module:
    """The network after a short training without a prior."""

    def loss(x: Tensor, y: Tensor, *_: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y)

    train_epochs(data, loss, torch.optim.Adam(model.parameters(), 3e-3), epochs=epochs, batch=128, seed=seed)
    return model.eval()


def tagged(n: int, epochs: int) -> Scene:
    """The demonstration's shapes and its network, converted as the studio does it."""
    draw = partial(shapes, contrast=demo.CONTRAST)
    scene = Scene(draw("train", n, shortcut="class"), draw("test", 1000, shortcut="random"), nn.Module, demo.TRANSFORM)
    pictures = scene.pictures(scene.train)

    def learnt(seed: int) -> nn.Module:
        regular = demo.trained(pictures, tuple(range(n)), quietly, epochs=epochs, seed=seed)
        return become_xdnn(regular, pictures.batch([0, 1]), pictures.batch(range(200))).model

    return replace(scene, learnt=learnt)


def quietly(done: int, total: int) -> None:
    """Nobody watches."""
