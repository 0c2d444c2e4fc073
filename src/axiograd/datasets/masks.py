"""Masks for image files: PNG files, or boxes as COCO and VOC store them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree as ET

import torch
from torch import Tensor

from axiograd._boxes import covered_pixels
from axiograd.datasets.images import Augment, Preprocess, pillow
from axiograd.datasets.tensors import check_choice
from axiograd.errors import ConfigurationError, DataMissingError, StorageError

if TYPE_CHECKING:
    from PIL.Image import Image

Meaning = Literal["here", "only-here", "not-here"]
Box = tuple[float, float, float, float]
#: A PNG file, or boxes (x0, y0, x1, y1) in the image's pixels.
Mask = Path | tuple[Box, ...]


@dataclass(frozen=True)
class FolderMasks:
    """The masks of image files, by the image's path."""

    found: Mapping[str, Mask]
    meaning: Meaning = "here"

    @classmethod
    def find(cls, masks: str | Path, paths: Sequence[str], root: Path | None, meaning: Meaning = "here") -> FolderMasks:
        """The masks of images, which may lie below `root`: a folder of PNG or of VOC's XML files, or COCO's JSON file.

        A mask and its image have the same name, where an ending and the first folders may be left out.
        """
        check_choice("masks_mean", meaning, ("here", "only-here", "not-here"))
        images = defaultdict(list)
        for path in paths:
            name = Path(path) if root is None else Path(path).relative_to(root)
            for last in {name.name, name.stem}:
                images[last].append((name.parent.parts, path))
        found: dict[str, Mask] = {}
        for name, mask in _named_masks(Path(masks)).items():
            folders = name.parent.parts
            near = [(own, path) for own, path in images[name.name] if _one_ends_the_other(own, folders)]
            owners = [path for own, path in near if own == folders] or [path for _, path in near]
            if len(owners) > 1:
                raise ConfigurationError(
                    f"{masks}: {name} may belong to any of {len(owners)} images; give the folder of its image too."
                )
            if owners and owners[0] in found:
                raise ConfigurationError(
                    f"{masks} has two masks for {owners[0]}; give the folders of their images too."
                )
            # A file of VOC's without a box is as good as none.
            known = _voc(mask) if isinstance(mask, Path) and mask.suffix == ".xml" and owners else mask
            if owners and known:
                found[owners[0]] = known
        if not found:
            first = Path(paths[0]) if root is None else Path(paths[0]).relative_to(root)
            raise DataMissingError(
                f"{masks} has no mask for any image: expected for example {first.with_suffix('.png')}, "
                f"{first.with_suffix('.xml')}, or COCO's JSON with file_name {str(first)!r}."
            )
        return cls(found, meaning)

    def __len__(self) -> int:
        return len(self.found)

    def arguments(self, path: str, image: Image, transform: Any, seed: Sequence[int]) -> dict[str, Tensor]:
        """What a prior is told about one image: `inside` for Energy, `mask` for RightReasons, and whether it is known.

        The mask goes where the image goes: resized, cropped, and, in an augmentation, drawn alike.
        """
        if not isinstance(transform, Preprocess | Augment):
            raise ConfigurationError(
                "masks follow an image through axiograd's transforms alone: give size=, or a Preprocess."
            )
        known = path in self.found
        drawn = self._drawn(path, image.size) if known else pillow().new("L", image.size, 0)
        mask = (transform.place(drawn, seed) > 0).float()
        if known and self.meaning == "only-here":
            mask = 1 - mask
        name = "inside" if self.meaning == "here" else "mask"
        return {name: mask, f"has_{name}": torch.tensor(known)}

    def region(self, path: str, size: tuple[int, int], transform: Preprocess) -> Tensor:
        """True [height, width] where the mask is in what the model sees; `size` is the image's, width first."""
        return transform.place(self._drawn(path, size))[0] > 0

    def _drawn(self, path: str, size: tuple[int, int]) -> Image:
        mask = self.found[path]
        if isinstance(mask, tuple):
            covered = covered_pixels(torch.tensor(mask), size[1], size[0]).any(0)
            boxes: Image = pillow().fromarray((covered.numpy() * 255).astype("uint8"))
            return boxes
        drawn = open_mask(mask)
        if drawn.size != size:
            raise StorageError(
                f"the mask {mask} has {drawn.width} × {drawn.height} pixels, and its image {size[0]} × {size[1]}: save "
                "it in the same size."
            )
        return drawn


def open_mask(path: str | Path) -> Image:
    """The PNG file of a mask, as grey."""
    try:
        with pillow().open(path) as file:
            mask: Image = file.convert("L")
    except (OSError, SyntaxError, ValueError) as error:
        raise StorageError(f"the mask {path} cannot be read: {str(error).rstrip('.')}.") from error
    return mask


def _named_masks(source: Path) -> Mapping[Path, Mask]:
    """All masks by the names of their images, with or without an ending."""
    if source.is_dir():
        files = [*sorted(source.rglob("*.xml")), *sorted(source.rglob("*.png"))]
        return {file.relative_to(source).with_suffix(""): file for file in files}
    if source.is_file() and source.suffix.lower() == ".json":
        return _coco(source)
    raise DataMissingError(f"masks {source}: there is no such folder, and no JSON file of COCO's of that name.")


def _coco(path: Path) -> dict[Path, Mask]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        files = {image["id"]: Path(image["file_name"]) for image in content["images"]}
        boxes = defaultdict(list)
        for each in content["annotations"]:
            x, y, width, height = (float(number) for number in each["bbox"])
            boxes[files[each["image_id"]]].append((x, y, x + width, y + height))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} cannot be read as COCO's annotations: {error!r}.") from error
    return {file: tuple(of_image) for file, of_image in boxes.items()}


def _voc(path: Path) -> tuple[Box, ...]:
    """VOC's boxes count from 1 and include their last column and row."""
    try:
        tree = ET.parse(path)  # noqa: S314  # expat itself limits what entities become
        corners = [
            [float(box.findtext(key, "")) for key in ("xmin", "ymin", "xmax", "ymax")] for box in tree.iter("bndbox")
        ]
    except (ET.ParseError, ValueError, OSError) as error:
        raise StorageError(f"{path} cannot be read as VOC's annotation: {str(error).rstrip('.')}.") from error
    return tuple((x0 - 1, y0 - 1, x1, y1) for x0, y0, x1, y1 in corners)


def _one_ends_the_other(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    n = min(len(one), len(other))
    return one[len(one) - n :] == other[len(other) - n :]
