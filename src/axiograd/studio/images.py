"""Images for the page, as PNG: pictures, heat maps to lay over them, and masks."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axiograd.datasets.images import pillow
from axiograd.datasets.pictures import Mask
from axiograd.report.colours import CLIP, TINT, colour

#: "Not here" and "here", apart for all common kinds of colour blindness, and not the colours of a heat map.
WRONG, RIGHT = (214, 30, 110), (0, 150, 120)


def png(pixels: NDArray[np.uint8], side: int | None = None) -> bytes:
    """A file of [height, width, 3 or 4] bytes, made smaller if it is longer than `side`."""
    image = pillow().fromarray(pixels)
    if side is not None:
        image.thumbnail((side, side))
    file = io.BytesIO()
    image.save(file, format="PNG", compress_level=3)
    return file.getvalue()


def heat_map(values: NDArray[Any]) -> bytes:
    """Orange for, blue against, as opaque as they are strong: to lay over a grey image."""
    limit = float(np.percentile(np.abs(values), CLIP)) or float(np.abs(values).max()) or 1.0
    strength = np.clip(np.abs(values) / limit, 0, 1)
    tint = colour(np.sign(values) * TINT)
    alpha = (strength * 255).round().astype(np.uint8)
    return png(np.concatenate([tint, alpha[..., None]], -1))


def mask_image(wrong: Mask | None, right: Mask | None, shape: tuple[int, int]) -> bytes:
    """Both masks in their colours, to lay over an image."""
    pixels = np.zeros((*shape, 4), dtype=np.uint8)
    for mask, tint in ((wrong, WRONG), (right, RIGHT)):
        if mask is not None:
            pixels[mask] = (*tint, 150)
    return png(pixels)
