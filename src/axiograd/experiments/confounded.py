"""The confounded sets, split for training, choosing λ and testing, with the features that must not count.

Training images give their class away, by a patch or by a colour. Validation images are training images held out, with
the confounder of a random class: λ is chosen where the confounder is worthless, but never on the test set, whose own
confounder (the random patch of another draw, the inverted palette) no choice has seen. Every method is chosen for by
the same images.

Decoy sets mask the patch. ColorMNIST has no region to mask: what must not count is colour at any place, and grey may.
So images are given in opponent coordinates, an orthonormal turn of (R, G, B) into grey and two differences of colours,

    u₀ = (R + G + B)/√3,   u₁ = (R − G)/√2,   u₂ = (R + G − 2B)/√6,

and the mask is channels u₁ and u₂. The turn is linear, so an X-DNN stays one, and the same prior on the same kind of
mask serves all methods. Lightness still tells something about the class: no prior here forbids that. A network without
biases cannot use it, because F(αx) = αF(x) has the same largest class; one with biases can.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from axiograd.datasets import TensorData, add_colour, add_decoy, fashion_mnist, mnist, shapes
from axiograd.datasets.synthetic import palette
from axiograd.datasets.tensors import Root, check_choice
from axiograd.errors import ConfigurationError

#: Rows: grey, red − green, yellow − blue; orthonormal.
OPPONENT = torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / torch.tensor(
    [[math.sqrt(3.0)], [math.sqrt(2.0)], [math.sqrt(6.0)]]
)


@dataclass(frozen=True)
class Confounded:
    """One set: `train` gives the class away, `val` and `test` do not, `clean_…` have no confounder at all."""

    train: TensorData
    val: TensorData
    test: TensorData
    clean_train: TensorData
    clean_val: TensorData
    clean_test: TensorData

    @property
    def name(self) -> str:
        """What the training images are."""
        return self.train.name

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.train.targets.max()) + 1

    @property
    def channels(self) -> int:
        """The number of input channels."""
        return self.train.inputs.shape[1]


@cache
def load(name: str, *, n_val: int = 5000, root: Root = None) -> Confounded:
    """Decoy Fashion-MNIST, Decoy MNIST or ColorMNIST; or the same made of procedural shapes, without a download.

    >>> data = load("shapes", n_val=100)
    >>> data.name, len(data.train), data.train.shortcuts.shape
    ('Decoy grey shapes train', 3900, torch.Size([3900, 1, 28, 28]))
    """
    check_choice("data", name, tuple(SETS))
    plain, confound = SETS[name]
    return split(plain("train", root), plain("test", root), confound, n_val)


Confound = Callable[[TensorData, str], TensorData]


def split(train: TensorData, test: TensorData, confound: Confound, n_val: int) -> Confounded:
    """Hold the last `n_val` training images out, and put each part's confounder on it."""
    if not 0 < n_val < len(train):
        raise ConfigurationError(f"n_val={n_val}: {train.name} has {len(train)} images to hold some out from.")
    first, last = slice(len(train) - n_val), slice(len(train) - n_val, None)
    clean = confound(train, "clean")
    return Confounded(
        train=confound(train, "class").select(first),
        val=confound(train, "random").select(last),
        test=confound(test, "test"),
        clean_train=clean.select(first),
        clean_val=clean.select(last),
        clean_test=confound(test, "clean"),
    )


def patches(data: TensorData, how: str) -> TensorData:
    """Decoy patches: of the class, of a random one (two draws), or none."""
    if how == "clean":
        return replace(data, shortcuts=torch.zeros_like(data.inputs, dtype=torch.bool))
    # Not the seed of the test set's draw.
    return add_decoy(data, informative=how == "class", seed=1 if how == "random" else 0)


def colours(data: TensorData, how: str) -> TensorData:
    """Colours in opponent coordinates: of the class, of a random one, inverted, or grey."""
    if how == "clean":
        coloured = replace(data, inputs=data.inputs.expand(-1, 3, -1, -1))
    elif how == "random":
        drawn = torch.randint(10, (len(data),), generator=torch.Generator().manual_seed(1))
        coloured = replace(data, inputs=data.inputs * palette(10).to(data.inputs)[drawn][:, :, None, None])
    else:
        coloured = add_colour(data, inverted=how == "test")
    chroma = torch.tensor([False, True, True])[None, :, None, None].expand(len(data), 3, 1, 1)
    return replace(coloured, inputs=opponent(coloured.inputs), shortcuts=chroma)


def opponent(images: Tensor) -> Tensor:
    """(R, G, B) as grey, red − green and yellow − blue.

    >>> opponent(torch.ones(1, 3, 1, 1)).flatten()
    tensor([1.7321, 0.0000, 0.0000])
    """
    return torch.einsum("cd,ndhw->nchw", OPPONENT.to(images), images).contiguous()


def _grey_shapes(which: str, root: Root = None) -> TensorData:  # noqa: ARG001  (called like the loaders)
    data = shapes(which, size=28)
    return TensorData(data.inputs.mean(1, keepdim=True), data.targets, f"grey shapes {which}", data.names)


SETS: dict[str, tuple[Callable[[str, Root], TensorData], Confound]] = {
    "fashion-mnist": (fashion_mnist, patches),
    "mnist": (mnist, patches),
    "color-mnist": (mnist, colours),
    "shapes": (_grey_shapes, patches),
}
