"""Images of which some have regions marked: "not here" where the class must not be read, "here" where it may."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from axiograd._io import load_tensors
from axiograd.datasets.folders import image_folder, open_mask
from axiograd.datasets.images import PIXELS, Preprocess, decode
from axiograd.datasets.tensors import TensorData
from axiograd.errors import DataMissingError, InputError, StorageError

#: The two things that a mark can say, as names of folders and categories.
NOT_HERE, HERE = "not-here", "here"
_RGB = 3

Mask = NDArray[np.bool_]
#: Where a sample says "not here" and where "here"; None where it says neither.
Marks = Callable[[int], tuple[Mask | None, Mask | None]]


@dataclass(frozen=True)
class Pictures:
    """Images with a class each, read as they are needed: as a network takes them, and as people see them."""

    name: str
    classes: tuple[str, ...]
    targets: Tensor
    names: tuple[str, ...]
    transform: Preprocess = PIXELS
    grey: bool = False
    #: Files on disk, or values in [0, 1] in memory.
    paths: tuple[str, ...] = ()
    pixels: Tensor | None = None
    #: Files that cannot be decoded, and why.
    skipped: tuple[str, ...] = ()

    @classmethod
    def of_folder(cls, root: str | Path, transform: Preprocess = PIXELS, *, grey: bool = False) -> Pictures:
        """One folder per class; files that cannot be decoded are left out and listed."""
        found = image_folder(root, on_damaged="skip")
        skipped = tuple(f"{one.path}: {one.reason}" for one in found.skipped)
        if not len(found):
            raise DataMissingError(f"{root} holds no image that can be decoded: {skipped[0]}.")
        base = Path(root)
        names = tuple(Path(path).relative_to(base).as_posix() for path in found.paths)
        return cls(found.name, found.classes, found.targets, names, transform, grey, tuple(found.paths), None, skipped)

    @classmethod
    def of_tensors(cls, data: TensorData, transform: Preprocess = PIXELS) -> Pictures:
        """Images [n, 1 or 3, height, width] with values in [0, 1]."""
        if data.inputs.ndim != 4 or data.inputs.shape[1] not in {1, _RGB} or not len(data):  # noqa: PLR2004
            raise InputError(
                f"{data.name}: inputs of shape {list(data.inputs.shape)}; images are [n, 1 or 3, height, width], n ≥ 1."
            )
        low, high = float(data.inputs.min()), float(data.inputs.max())
        if not (low >= 0 and high <= 1):
            raise InputError(
                f"{data.name}: values from {low:.4g} to {high:.4g}; give pixels in [0, 1] and a transform."
            )
        targets = data.targets.long()
        classes = data.names or tuple(str(k) for k in range(int(targets.max()) + 1))
        names = tuple(f"{i}" for i in range(len(data)))
        return cls(data.name, classes, targets, names, transform, data.inputs.shape[1] == 1, (), data.inputs)

    def __len__(self) -> int:
        return len(self.names)

    def read(self, index: int) -> Tensor:
        """What the network is given."""
        return self.batch([index])[0]

    def batch(self, rows: Sequence[int]) -> Tensor:
        """Several of them; all must have one size."""
        if self.pixels is not None:
            return self.transform.normalise(self.pixels[list(rows)])
        images = [decode(Path(self.paths[row])) for row in rows]
        if self.grey:
            read = [self.transform(image.convert("L").convert("RGB"))[:1] for image in images]
        else:
            read = [self.transform(image) for image in images]
        if len(shapes := {tuple(one.shape) for one in read}) > 1:
            raise InputError(
                f"{self.name} has images of different sizes, {sorted(shapes)[:3]}: give a size that all are brought to."
            )
        return torch.stack(read)

    def picture(self, index: int) -> NDArray[np.uint8]:
        """What people see, [height, width, 3] bytes: what the network is given, in colours."""
        return np.asarray((self.transform.picture(self.read(index)) * 255).round().byte().permute(1, 2, 0))

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of all images, as the network is given them."""
        height, width = self.read(0).shape[-2:]
        return int(height), int(width)

    def description(self) -> dict[str, Any]:
        """All but pixels in memory, as JSON has it and `described` reads it."""
        plain = {name: getattr(self, name) for name in ("name", "classes", "names", "grey", "paths")}
        return {**plain, "targets": self.targets.tolist(), "transform": self.transform.to_dict()}

    @classmethod
    def described(cls, content: Mapping[str, Any], pixels: Tensor | None = None) -> Pictures:
        """From a description."""
        return cls(
            content["name"],
            tuple(content["classes"]),
            torch.tensor(content["targets"], dtype=torch.long),
            tuple(content["names"]),
            Preprocess.from_dict(content["transform"]),
            content["grey"],
            tuple(content["paths"]),
            pixels,
        )


class MarkedImages(Dataset[Any]):
    """Passes over images, each with the arguments of a prior: `mask` ("not here"), `inside` ("here"), and who has them.

    A pass has `size` images: those that are marked come as often as they are among all, and at least `share` of the
    pass is theirs, so that few marks are seen often; which they are depends on `seed` and the pass alone.
    """

    def __init__(
        self,
        pictures: Pictures,
        rows: Sequence[int],
        marks: Marks,
        marked: Sequence[int],
        *,
        arguments: Sequence[str] = ("mask",),
        size: int | None = None,
        share: float = 0.25,
        seed: int = 0,
    ) -> None:
        if not rows:
            raise InputError(f"{pictures.name}: no image to train with.")
        self.pictures, self.rows, self.marks, self.seed = pictures, tuple(rows), marks, seed
        self.arguments, self.size, self.share = tuple(arguments), min(size or len(rows), len(rows)), share
        chosen = set(marked)
        self.with_marks = tuple(row for row in self.rows if row in chosen)
        self.without = tuple(row for row in self.rows if row not in chosen)
        #: The images of the pass.
        self.drawn: tuple[int, ...] = ()
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Draw the images of a pass."""
        random = np.random.default_rng([self.seed, epoch])
        natural = len(self.with_marks) / len(self.rows)
        wanted = round(self.size * max(natural, self.share)) if self.with_marks else 0
        wanted = wanted if self.without else self.size
        repeats = -(-wanted // max(1, len(self.with_marks)))
        marked = [row for _ in range(repeats) for row in random.permutation(self.with_marks).tolist()][:wanted]
        others = random.permutation(self.without).tolist()[: self.size - wanted]
        self.drawn = tuple(int(row) for row in [*marked, *others])

    def __len__(self) -> int:
        return len(self.drawn)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        inputs, targets, given = self.collated([index])
        return inputs[0], targets[0], {name: value[0] for name, value in given.items()}

    def collated(self, indices: Sequence[int]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Several samples of the pass, as a training step takes them."""
        rows = [self.drawn[index] for index in indices]
        inputs, targets = self.pictures.batch(rows), self.pictures.targets[rows]
        found = [dict(zip(("mask", "inside"), self.marks(row), strict=True)) for row in rows]
        empty = np.zeros(inputs.shape[-2:], dtype=bool)
        given: dict[str, Tensor] = {}
        for name in self.arguments:
            masks = np.stack([empty if (mask := one[name]) is None else mask for one in found])
            given[name] = torch.from_numpy(masks.astype(np.float32))[:, None]
            given[f"has_{name}"] = torch.tensor([one[name] is not None for one in found])
        return inputs, targets, given


def marked(
    file: str,
    *,
    arguments: Sequence[str] = ("mask",),
    size: int | None = None,
    share: float = 0.25,
    seed: int = 0,
) -> MarkedImages:
    """The training images that a studio has kept, with the masks that were painted there; `file` is its images.json."""
    path = Path(file)
    if not path.is_file():
        raise DataMissingError(f"there is no file {path}; run this where the studio has kept its images.json.")
    try:
        content = json.loads(path.read_bytes())
        tensors = content["tensors"]
        pictures = Pictures.described(content, load_tensors(path.parent / tensors)["pixels"] if tensors else None)
        files: dict[str, dict[str, str]] = content["masks"]
        rows = content["train"]
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} does not describe marked images: {error!r}.") from error

    def read(row: int) -> tuple[Mask | None, Mask | None]:
        named = files.get(str(row), {})
        wrong, right = (read_mask(path.parent / named[kind]) if kind in named else None for kind in (NOT_HERE, HERE))
        return wrong, right

    has = [int(row) for row in files]
    return MarkedImages(pictures, rows, read, has, arguments=arguments, size=size, share=share, seed=seed)


def read_mask(path: Path) -> Mask:
    """A grey PNG: more than half white is marked."""
    return np.asarray(open_mask(path)) > 127  # noqa: PLR2004  # half of 255
