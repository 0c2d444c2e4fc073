"""Sets with a confounder: patches that give the class away in training, and digits in class-coded colours."""

import colorsys
from collections.abc import Callable
from dataclasses import replace

import torch

from axiograd.datasets._mnist import fashion_mnist, mnist
from axiograd.datasets._shapes import corner_squares
from axiograd.datasets.tensors import Root, TensorData, check_choice
from axiograd.errors import ConfigurationError

BASES: dict[str, Callable[[str, Root], TensorData]] = {"mnist": mnist, "fashion_mnist": fashion_mnist}


def decoy(split: str = "train", *, base: str = "fashion_mnist", root: Root = None, seed: int = 0) -> TensorData:
    """Decoy (Fashion-)MNIST: in training, a 4×4 patch in a random corner has the grey value 255 − 25·class.

    In the test split value and corner are random: a network that looks at the patch fails. `shortcuts` is the
    patch.
    """
    check_choice("base", base, tuple(BASES))
    return add_decoy(BASES[base](split, root), informative=split == "train", seed=seed)


def add_decoy(data: TensorData, *, informative: bool, seed: int = 0, size: int = 4) -> TensorData:
    """Put a patch of value (255 − 25·class)/255, or a random class's, into a random corner of each image.

    >>> plain = TensorData(torch.zeros(5, 1, 28, 28), torch.arange(5), name="nothing")
    >>> marked = add_decoy(plain, informative=True)
    >>> (marked.inputs.amax((1, 2, 3)) * 255).round().tolist()
    [255.0, 230.0, 205.0, 180.0, 155.0]
    >>> marked.shortcuts.sum((1, 2, 3)).tolist()
    [16, 16, 16, 16, 16]
    """
    n, _, height, width = data.inputs.shape
    if height != width:
        raise ConfigurationError(f"{data.name}: images of {height} × {width}; a decoy needs square ones.")
    classes = int(data.targets.max()) + 1
    if classes > 11:  # noqa: PLR2004  (255 − 25·class reaches zero)
        raise ConfigurationError(
            f"{data.name}: 255 − 25·class is negative for class {classes - 1}; at most 11 classes."
        )
    generator = torch.Generator().manual_seed(seed)
    corners = torch.randint(0, 2, (n, 2), generator=generator)
    random = torch.randint(0, max(classes, 2), (n,), generator=generator)
    values = (255 - 25 * (data.targets if informative else random)) / 255
    inside = corner_squares(corners, height, size)
    inputs = torch.where(inside, values[:, None, None, None].to(data.inputs.dtype), data.inputs)
    return replace(data, inputs=inputs, shortcuts=inside, name=f"Decoy {data.name}")


def color_mnist(split: str = "train", *, base: str = "mnist", root: Root = None) -> TensorData:
    """Digits coloured by class, red to purple; in the test split class c has the colour of class 9 − c."""
    check_choice("base", base, tuple(BASES))
    return add_colour(BASES[base](split, root), inverted=split == "test")


def add_colour(data: TensorData, *, inverted: bool = False) -> TensorData:
    """Multiply grey images with the colour of their class, or of the class at the other end of the palette.

    >>> grey = TensorData(torch.ones(2, 1, 1, 1), torch.tensor([0, 9]), name="dots")
    >>> add_colour(grey).inputs[0].flatten()
    tensor([1., 0., 0.])
    """
    colours = palette(max(10, int(data.targets.max()) + 1)).to(data.inputs.dtype)
    if inverted:
        colours = colours.flip(0)
    inputs = data.inputs * colours[data.targets][:, :, None, None]
    return replace(data, inputs=inputs, name=f"Colour {data.name}")


def palette(n: int) -> torch.Tensor:
    """n colours from red to purple, evenly spaced in hue and lightness.

    >>> palette(10).shape
    torch.Size([10, 3])
    """
    steps = [i / max(1, n - 1) for i in range(n)]
    # Red has hue 0 and lightness 1/2, purple hue 5/6 and lightness 1/4.
    return torch.tensor([colorsys.hls_to_rgb(5 / 6 * t, 0.5 - 0.25 * t, 1.0) for t in steps])
