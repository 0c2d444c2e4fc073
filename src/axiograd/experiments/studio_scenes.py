"""Where the studio's experiments play: images with a shortcut, and networks that have learnt it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from axiograd.datasets import Preprocess, TensorData, add_colour, mnist, shapes
from axiograd.datasets.images import PIXELS
from axiograd.datasets.pictures import Pictures
from axiograd.experiments import box_energy
from axiograd.experiments.confounded import Confounded, load
from axiograd.experiments.decoy_training import METHODS, fitted
from axiograd.experiments.loop import batch_loss, train_epochs
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
    #: Whether all but a box must not count, instead of a box.
    outside: bool = False

    def pictures(self, data: TensorData) -> Pictures:
        """As the studio has them."""
        return Pictures.of_tensors(TensorData(data.inputs, data.targets, data.name), self.transform)

    def normalised(self, data: TensorData) -> TensorData:
        """As the network takes them."""
        return replace(data, inputs=self.transform.normalise(data.inputs))


def images(name: str) -> Confounded:
    """The confounded set of both experiments."""
    return load(name, n_val=1000)


def decoyed(name: str, n: int, epochs: int) -> Scene:
    """The first n images of a set with decoy patches, and the small network of the decoy experiment."""
    data = images(name)
    train = data.train.select(slice(n))
    return Scene(train, data.test, partial(shortcut_learnt, train, epochs))


def shortcut_learnt(train: TensorData, epochs: int, seed: int) -> nn.Module:
    """The small network of the decoy experiment, an X-DNN, after a short training without a prior."""
    return fitted(METHODS["none-x"], 0.0, train, epochs=epochs, seed=seed)[0].eval()


def coloured(n: int, epochs: int) -> Scene:
    """Digits in the colour of their class, tested in another's: a shortcut without a place of its own.

    What a person could paint is the digit, box and all.
    """
    made = [add_colour(mnist("train").select(slice(n))), add_colour(mnist("test"), inverted=True)]
    train, test = (replace(data, shortcuts=data.inputs.amax(1, keepdim=True) > 0) for data in made)

    return Scene(train, test, partial(shortcut_learnt, train, epochs))


def boxed(n: int, epochs: int) -> Scene:
    """Tiny ImageNet, of which no shortcut is known: what must not count is all but the object's box."""
    train, test = (pixels("train").select(slice(n)), pixels("val"))
    mean, std = (tuple(values.tolist()) for values in (train.inputs.mean((0, 2, 3)), train.inputs.std((0, 2, 3))))
    transform = Preprocess(resize=None, crop=None, mean=mean, std=std)

    def learnt(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        model = box_energy.network(len(train.names), train.inputs.shape[-1], homogeneous=True)
        optimizer = torch.optim.Adam(model.parameters(), 3e-3)
        seen = replace(train, inputs=transform.normalise(train.inputs))
        train_epochs(seen, batch_loss(model), optimizer, epochs=epochs, batch=128, seed=seed)
        return model.eval()

    return Scene(train, test, learnt, transform, outside=True)


def pixels(split: str) -> TensorData:
    """Tiny ImageNet in a random order, with its boxes as what a person sees; objects below 1 % are left out."""
    data = box_energy.tiny(split)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    seen = torch.as_tensor(data.masks).float().mean((1, 2, 3)) >= 0.01  # noqa: PLR2004
    data = data.select(order[seen[order]])
    return replace(data, masks=None, shortcuts=data.masks)


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
