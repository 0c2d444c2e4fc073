"""A procedural set that needs no download: shapes with a ground-truth mask and an optional shortcut."""

import math

import torch
from torch import Tensor

from axiograd.datasets.tensors import TensorData, check_choice

NAMES = ("disc", "square", "triangle", "cross")
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
    targets = torch.arange(count)[torch.randperm(count, generator=generator)] % len(NAMES)
    mask = draw(targets, size, generator)
    images = paint(mask, contrast, generator)
    tags = torch.randint(0, len(NAMES), (count,), generator=generator)
    corners = torch.randint(0, 2, (count, 2), generator=generator)
    tagged = torch.zeros(count, 1, size, size, dtype=torch.bool)
    if shortcut != "none":
        tagged = corner_squares(corners, size, side=max(2, size // 8))
        colours = torch.tensor(TAGS)[targets if shortcut == "class" else tags]
        images = torch.where(tagged, colours[:, :, None, None], images)
    name = f"shapes {split}" if shortcut == "none" else f"shapes {split}, {shortcut} shortcut"
    # What the tag covers is not part of the shape that a network can see.
    return TensorData(images, targets, name, NAMES, masks=(mask > 0.5) & ~tagged, shortcuts=tagged)  # noqa: PLR2004


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
