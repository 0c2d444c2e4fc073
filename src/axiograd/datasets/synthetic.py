"""Made-up data: shapes with a ground-truth mask, and sets whose training images give the class away by a shortcut."""

import colorsys
import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from axiograd.datasets.sources import fashion_mnist, mnist
from axiograd.datasets.tensors import Root, TensorData, check_choice
from axiograd.errors import ConfigurationError

SHAPES = ("disc", "square", "triangle", "cross")
#: Colours of the tag, one per class.
TAGS = ((0.9, 0.1, 0.1), (0.1, 0.8, 0.1), (0.15, 0.25, 0.95), (0.9, 0.8, 0.1))


def shapes(
    split: str = "train",
    n: int | None = None,
    *,
    shortcut: str = "none",
    size: int = 32,
    contrast: float = 0.5,
    seed: int = 0,
) -> TensorData:
    """Images [n, 3, size, size] in [0, 1] of a disc, square, triangle or cross on a rough background.

    `shortcut` puts a small tag into a corner: `"class"` in the colour of the class, `"random"` in that of a
    random class, `"none"` no tag. `masks` is the shape, `shortcuts` the tag. Every split has its own images.
    The shape is lighter than the background by up to `contrast`; the less, the more tempting is the shortcut.

    >>> data = shapes("train", 8, shortcut="class")
    >>> data.inputs.shape, data.masks.shape, sorted(set(data.targets.tolist()))
    (torch.Size([8, 3, 32, 32]), torch.Size([8, 1, 32, 32]), [0, 1, 2, 3])
    """
    check_choice("split", split, ("train", "val", "test"))
    check_choice("shortcut", shortcut, ("none", "class", "random"))
    count = n if n is not None else (4000 if split == "train" else 1000)
    generator = torch.Generator().manual_seed(3 * seed + ("train", "val", "test").index(split))
    targets = torch.arange(count)[torch.randperm(count, generator=generator)] % len(SHAPES)
    mask = draw(targets, size, generator)
    images = paint(mask, contrast, generator)
    tags = torch.randint(0, len(SHAPES), (count,), generator=generator)
    corners = torch.randint(0, 2, (count, 2), generator=generator)
    tagged = torch.zeros(count, 1, size, size, dtype=torch.bool)
    if shortcut != "none":
        tagged = corner_squares(corners, size, side=max(2, size // 8))
        colours = torch.tensor(TAGS)[targets if shortcut == "class" else tags]
        images = torch.where(tagged, colours[:, :, None, None], images)
    name = f"shapes {split}" if shortcut == "none" else f"shapes {split}, {shortcut} shortcut"
    # What the tag covers is not part of the shape that a network can see.
    return TensorData(images, targets, name, SHAPES, masks=(mask > 0.5) & ~tagged, shortcuts=tagged)  # noqa: PLR2004


def uniform(n: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    """n numbers, shaped to broadcast over rows and columns."""
    return (low + (high - low) * torch.rand(n, generator=generator))[:, None, None]


def draw(targets: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Coverage [n, 1, size, size] of each shape, of random place, size and angle."""
    n = len(targets)
    axis = (torch.arange(size) + 0.5) / size * 2 - 1
    radius = uniform(n, 0.45, 0.7, generator)
    x = axis[None, None, :] - uniform(n, -0.25, 0.25, generator)
    y = axis[None, :, None] - uniform(n, -0.25, 0.25, generator)
    angle = uniform(n, -math.pi / 6, math.pi / 6, generator)
    u, v = x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()
    # Each is a distance to the border, negative inside; the factors make the four areas about the same.
    disc = (u.square() + v.square()).sqrt() - 0.85 * radius
    square = torch.maximum(u.abs(), v.abs()) - 0.75 * radius
    slope = math.sqrt(3) / 2
    triangle = torch.maximum(slope * u.abs() + v / 2, -v) - 0.58 * radius
    arm, reach = 0.32 * radius, 1.05 * radius
    cross = torch.minimum(torch.maximum(u.abs() - arm, v.abs() - reach), torch.maximum(u.abs() - reach, v.abs() - arm))
    distance = torch.stack([disc, square, triangle, cross], 1)[torch.arange(n), targets]
    # One pixel of soft border.
    return (0.5 - distance * size / 2).clamp(0, 1)[:, None]


def paint(mask: Tensor, contrast: float, generator: torch.Generator) -> Tensor:
    """Random colours, the shape's lighter than the background's, with blotches and noise on both."""
    n, _, size, _ = mask.shape
    back = 0.5 * torch.rand(n, 3, 1, 1, generator=generator)
    front = back + contrast * (0.4 + 0.6 * torch.rand(n, 3, 1, 1, generator=generator))
    blotches = torch.randn(n, 3, 5, 5, generator=generator)
    rough = torch.nn.functional.interpolate(blotches, size=(size, size), mode="bilinear", align_corners=True)
    noise = torch.randn(n, 3, size, size, generator=generator)
    return (back + (front - back) * mask + 0.08 * rough + 0.06 * noise).clamp(0, 1)


def corner_squares(corners: Tensor, size: int, side: int) -> Tensor:
    """Masks [n, 1, size, size] of a square in one of the four corners.

    >>> corner_squares(torch.tensor([[0, 1]]), 4, 2)[0, 0].int()
    tensor([[0, 0, 1, 1],
            [0, 0, 1, 1],
            [0, 0, 0, 0],
            [0, 0, 0, 0]], dtype=torch.int32)
    """
    offset = torch.arange(size) - corners[..., None] * (size - side)
    inside = (offset >= 0) & (offset < side)
    return inside[:, None, 0, :, None] & inside[:, None, 1, None, :]


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


def palette(n: int) -> Tensor:
    """n colours from red to purple, evenly spaced in hue and lightness.

    >>> palette(10).shape
    torch.Size([10, 3])
    """
    steps = [i / max(1, n - 1) for i in range(n)]
    # Red has hue 0 and lightness 1/2, purple hue 5/6 and lightness 1/4.
    return torch.tensor([colorsys.hls_to_rgb(5 / 6 * t, 0.5 - 0.25 * t, 1.0) for t in steps])
