"""One image: decoded as people see it, resized, cropped, normalised, and back; the training augmentation."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from axiograd._extras import optional
from axiograd.errors import DataMissingError, StorageError

if TYPE_CHECKING:
    from PIL.Image import Image

SIXTEEN_BITS = 65_535
_RGB = 3

Triple = tuple[float, ...]


def pillow() -> Any:
    """Pillow's Image module, or MissingExtraError."""
    return optional("PIL.Image", "images", "decoding images", package="pillow")


@dataclass(frozen=True)
class Preprocess:
    """Short side to `resize`, centre crop, then (v·white − mean) / std, v in [0, 1], channels RGB or BGR.

    >>> Preprocess(resize=None, crop=None).invert(torch.zeros(3, 1, 1)).flatten()
    tensor([0.4850, 0.4560, 0.4060])
    """

    resize: int | None = 256
    crop: int | None = 224
    mean: Triple = (0.485, 0.456, 0.406)
    std: Triple = (0.229, 0.224, 0.225)
    white: float = 1.0
    bgr: bool = False

    def __call__(self, image: "Image", seed: Sequence[int] = ()) -> Tensor:  # noqa: ARG002  (nothing is random here)
        return self.normalise(to_tensor(self._framed(image, pillow().Resampling.BILINEAR)))

    def place(self, mask: "Image", seed: Sequence[int] = ()) -> Tensor:  # noqa: ARG002
        """A grey mask [1, height, width] in [0, 1] that went where the image goes; no values between its own."""
        return to_tensor(self._framed(mask, pillow().Resampling.NEAREST))[:1]

    def _framed(self, image: "Image", resampling: Any) -> "Image":
        if self.resize is not None:
            image = resize_short_side(image, self.resize, resampling)
        return image if self.crop is None else centre_crop(image, self.crop)

    def normalise(self, pixels: Tensor) -> Tensor:
        """Values in [0, 1], RGB or grey, to what the network expects: [channels, …] or [n, channels, …]."""
        mean, std = self._statistics(pixels)
        ordered = pixels.flip(-3) if self.bgr else pixels
        return (ordered * self.white - mean) / std

    def invert(self, inputs: Tensor) -> Tensor:
        """What `normalise` was given, for pictures."""
        mean, std = self._statistics(inputs)
        pixels = (inputs * std + mean) / self.white
        return pixels.flip(-3) if self.bgr else pixels

    def _statistics(self, values: Tensor) -> tuple[Tensor, Tensor]:
        n = values.shape[-3]
        return values.new_tensor(self.mean[:n])[:, None, None], values.new_tensor(self.std[:n])[:, None, None]

    def picture(self, inputs: Tensor) -> Tensor:
        """What people see of inputs, also of grey ones: RGB in [0, 1]."""
        pixels = self.invert(inputs).clamp(0, 1)
        return pixels if pixels.shape[-3] == _RGB else pixels.expand(*pixels.shape[:-3], _RGB, -1, -1)

    def words(self, *, grey: bool = False) -> str:
        """What is done to an image.

        >>> SQUEEZENET.words()
        'short side 256, centre crop 227, BGR, values 0 to 255, minus (103.939, 116.779, 123.68)'
        """
        parts = [
            "" if self.resize is None else f"short side {self.resize}",
            "" if self.crop is None else f"centre crop {self.crop}",
            "grey" if grey else "BGR" if self.bgr else "RGB",
            f"values 0 to {self.white:g}",
            "" if not any(self.mean) else f"minus {_numbers(self.mean)}",
            "" if set(self.std) == {1.0} else f"divided by {_numbers(self.std)}",
        ]
        return ", ".join(part for part in parts if part)

    def __str__(self) -> str:
        return self.words()

    def to_dict(self) -> dict[str, Any]:
        """For a file's header."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Preprocess":
        """What `to_dict` gave, also after JSON has made lists of its tuples."""
        return cls(**{**content, "mean": tuple(content["mean"]), "std": tuple(content["std"])})


@dataclass(frozen=True)
class Augment:
    """A random part of the image, 8 to 100 % of its area, at `size` × `size`, mirrored half of the time.

    The same seed gives the same crop, in whichever process it is drawn.
    """

    size: int = 224
    then: Preprocess = Preprocess(resize=None, crop=None)
    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5

    def __call__(self, image: "Image", seed: Sequence[int] = ()) -> Tensor:
        return self.then(self._part(image, seed, pillow().Resampling.BILINEAR))

    def place(self, mask: "Image", seed: Sequence[int] = ()) -> Tensor:
        """A grey mask [1, height, width] in [0, 1] that went where the image with this seed goes."""
        return self.then.place(self._part(mask, seed, pillow().Resampling.NEAREST))

    def _part(self, image: "Image", seed: Sequence[int], resampling: Any) -> "Image":
        random = np.random.default_rng(list(seed))
        box = random_box(image.size, self.area, self.ratio, random)
        part = image.resize((self.size, self.size), resampling, box=box)
        if random.random() < self.flip:
            part = part.transpose(pillow().Transpose.FLIP_LEFT_RIGHT)
        return part


def random_box(
    size: tuple[int, int], area: tuple[float, float], ratio: tuple[float, float], random: np.random.Generator
) -> tuple[int, int, int, int]:
    """A box of random area and log-uniform aspect ratio; after ten misses, the largest centred one that fits.

    >>> random_box((100, 50), (0.5, 0.5), (1.0, 1.0), np.random.default_rng(0))[3]
    50
    """
    width, height = size
    for _ in range(10):
        pixels = width * height * random.uniform(*area)
        aspect = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(pixels * aspect)), round(math.sqrt(pixels / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(random.integers(0, width - w + 1)), int(random.integers(0, height - h + 1))
            return left, top, left + w, top + h
    aspect = min(max(width / height, ratio[0]), ratio[1])
    w, h = min(width, round(height * aspect)), min(height, round(width / aspect))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def resize_short_side(image: "Image", short: int, resampling: Any = None) -> "Image":
    """The image with its shorter side at `short` pixels, by default bilinear with antialiasing."""
    width, height = image.size
    size = (short, short * height // width) if width <= height else (short * width // height, short)
    how = pillow().Resampling.BILINEAR if resampling is None else resampling
    resized: Image = image if size == image.size else image.resize(size, how)
    return resized


def centre_crop(image: "Image", size: int) -> "Image":
    """The middle `size` × `size` pixels; black where the image is smaller."""
    width, height = image.size
    left, top = round((width - size) / 2), round((height - size) / 2)
    return image.crop((left, top, left + size, top + size))


def to_tensor(image: "Image") -> Tensor:
    """[3, height, width] in [0, 1], RGB."""
    pixels = np.asarray(image.convert("RGB"))
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float().div_(255)


#: The paper's: short side 256, crop 224, ImageNet's mean and standard deviation.
IMAGENET = Preprocess()
#: The SqueezeNet 1.1 weights: BGR at 0 to 255 minus the mean, crop 227.
SQUEEZENET = Preprocess(crop=227, mean=(103.939, 116.779, 123.68), std=(1.0, 1.0, 1.0), white=255.0, bgr=True)
#: The ResNet-50 weights, version 1: the same with crop 224.
CAFFE = Preprocess(mean=(103.939, 116.779, 123.68), std=(1.0, 1.0, 1.0), white=255.0, bgr=True)
#: The ResNet-18 weights for Tiny ImageNet: 64 × 64 as they are, in [−1, 1].
TINY_IMAGENET = Preprocess(resize=None, crop=None, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
#: Values in [0, 1] as they are in the file.
PIXELS = Preprocess(resize=None, crop=None, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


def _numbers(values: Sequence[float]) -> str:
    return f"{values[0]:g}" if len(set(values)) == 1 else f"({', '.join(f'{v:g}' for v in values)})"


class DamagedImageError(StorageError):
    """An image file that cannot be decoded."""


def decode(source: "Path | bytes") -> "Image":
    """The image in a file, or in its bytes, as people see it and as RGB; or DamagedImageError with its path and why.

    Turned as its EXIF orientation says; 16-bit grey scaled to 8 bits; what is transparent laid over white.
    """
    from PIL import ImageOps

    try:
        with pillow().open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            frames = getattr(image, "n_frames", 1)
            if frames > 1 and image.format != "MPO":  # a phone's, whose second picture is not looked at
                raise ValueError(f"it holds {frames} frames, not one picture; save the one that is meant.")
            return as_rgb(ImageOps.exif_transpose(image))
    except FileNotFoundError as error:
        raise DataMissingError(f"there is no image {source!s}.") from error
    except damage() as error:
        name = "the image" if isinstance(source, bytes) else str(source)
        hint = "save it as JPEG, or " if name.lower().endswith((".heic", ".heif")) else ""
        raise DamagedImageError(
            f"{name} cannot be decoded: {str(error).rstrip('.')}; {hint}leave it out (on_damaged='skip')."
        ) from error


def as_rgb(image: "Image") -> "Image":
    """Any mode of Pillow's as RGB; ValueError for numbers whose range is unknown."""
    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > SIXTEEN_BITS:
            raise ValueError(
                f"its grey values reach from {values.min()} to {values.max()}, not from 0 to {SIXTEEN_BITS}."
            )
        image = pillow().fromarray(np.round(values / (SIXTEEN_BITS / 255)).astype(np.uint8))
    elif image.mode == "F":
        raise ValueError("its grey values are floating-point numbers, whose range is unknown; save it as 8 or 16 bits.")
    elif image.has_transparency_data:
        alpha = image.convert("RGBA")
        image = pillow().alpha_composite(pillow().new("RGBA", image.size, "white"), alpha)
    decoded: Image = image.convert("RGB")
    return decoded


def damage() -> tuple[type[Exception], ...]:
    """What Pillow raises for files that are not images, are cut off, broken inside, or too large."""
    return (OSError, SyntaxError, ValueError, EOFError, IndexError, pillow().DecompressionBombError)
