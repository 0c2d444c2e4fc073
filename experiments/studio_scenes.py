"""Where the studio's experiments play: images with a shortcut, and networks without biases that have learnt it."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from axiograd.datasets import Preprocess, TensorData, add_colour, mnist, shapes
from axiograd.datasets.images import PIXELS
from axiograd.datasets.pictures import Pictures
from axiograd.homogeneity import to_xdnn
from axiograd.studio import demo
from experiments import box_energy, confounded, loops

#: The scene where no shortcut is known: what must not count is all but the object's box.
BOXES = "Tiny ImageNet, all but the box"
#: Of shapes, so that the tag is the easier thing to learn.
FAINT = 0.3


class Scene(NamedTuple):
    """Images whose shortcut tells the class, test images whose shortcut does not help; pixels in [0, 1]."""

    train: TensorData
    test: TensorData
    #: An X-DNN that has learnt the shortcut, by its seed.
    learnt: Callable[[int], nn.Module]
    transform: Preprocess = PIXELS

    def pictures(self, data: TensorData) -> Pictures:
        return Pictures.of_tensors(TensorData(data.inputs, data.targets, data.name), self.transform)


@cache
def scene_of(name: str, n: int, epochs: int) -> Scene:
    if name == "the demonstration's shapes":
        return demonstration(n, epochs)
    transform = PIXELS
    if name == BOXES:
        train, test = (boxed(split) for split in ("train", "val"))
        train = train.select(slice(n))
        mean, std = (tuple(v.tolist()) for v in (train.inputs.mean((0, 2, 3)), train.inputs.std((0, 2, 3))))
        transform = Preprocess(resize=None, crop=None, mean=mean, std=std)
    elif name == "Colour MNIST":  # what a person could paint is the digit
        train, test = add_colour(mnist("train").select(slice(n))), add_colour(mnist("test"), inverted=True)
        train, test = (replace(data, shortcuts=data.inputs.amax(1, keepdim=True) > 0) for data in (train, test))
    else:
        data = confounded.load("shapes" if name == "grey shapes" else "Fashion-MNIST", 1000)
        train, test = data.train.select(slice(n)), data.test

    def learnt(seed: int) -> nn.Module:
        seen = replace(train, inputs=transform.normalise(train.inputs))
        if name != BOXES:
            return confounded.fitted(seen, homogeneous=True, epochs=epochs, seed=seed)[0].eval()
        torch.manual_seed(seed)
        model = box_energy.network(len(train.names), train.inputs.shape[-1], homogeneous=True)
        optimizer = torch.optim.Adam(model.parameters(), 3e-3)
        loops.train(seen, lambda x, y, _: F.cross_entropy(model(x), y), optimizer, epochs=epochs, batch=128, seed=seed)
        return model.eval()

    return Scene(train, test, learnt, transform)


def demonstration(n: int, epochs: int) -> Scene:
    """The network of the studio's demonstration, on its shapes with the tag in any corner."""
    train, test = (
        shapes(split, count, shortcut=kind, contrast=FAINT)
        for split, count, kind in (("train", n, "class"), ("test", 1000, "random"))
    )
    scene = Scene(train, test, nn.Module, demo.TRANSFORM)
    pictures = scene.pictures(train)

    def learnt(seed: int) -> nn.Module:
        regular = demo.trained(pictures, list(range(n)), epochs=epochs, seed=seed)
        return to_xdnn(regular, pictures.batch(range(200))).model

    return scene._replace(learnt=learnt)


def boxed(split: str) -> TensorData:
    """Tiny ImageNet in a random order, with its boxes as what a person sees; objects below 1 % are left out."""
    data = box_energy.tiny(split)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    seen = torch.as_tensor(data.masks).float().mean((1, 2, 3)) >= 0.01
    data = data.select(order[seen[order]])
    return replace(data, masks=None, shortcuts=data.masks)
