"""Masks for a folder of images: PNG files in the same layout, or boxes as COCO and VOC store them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree as ET

import torch
from torch import Tensor

from axiograd.datasets.tensors import check_choice
from axiograd.datasets.transforms import Augment, Preprocess, pillow
from axiograd.errors import ConfigurationError, DataMissingError, StorageError

if TYPE_CHECKING:
    from PIL.Image import Image

Meaning = Literal["here", "only-here", "not-here"]
MEANINGS = ("here", "only-here", "not-here")
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class FolderMasks:
    """Of each image, by its place, a PNG file or boxes (x0, y0, x1, y1) in the image's pixels, or nothing."""

    found: Mapping[int, str | tuple[Box, ...]]
    meaning: Meaning = "here"

    @classmethod
    def find(cls, masks: str | Path, paths: Sequence[str], root: Path, meaning: Meaning = "here") -> FolderMasks:
        """Masks of images below `root`: a folder of PNG or of VOC's XML files, or COCO's JSON file."""
        check_choice("masks_mean", meaning, MEANINGS)
        source = Path(masks)
        names = {str(Path(path).relative_to(root)): place for place, path in enumerate(paths)}
        if source.is_file() and source.suffix.lower() == ".json":
            found: Mapping[int, str | tuple[Box, ...]] = _coco(source, names)
        elif source.is_dir():
            found = _files(source, names)
        else:
            raise DataMissingError(f"masks {masks}: there is no such folder, and no JSON file of COCO's of that name.")
        if not found:
            first = next(iter(names), "NAME.jpg")
            raise DataMissingError(
                f"{masks} has no mask for any image of {root}: expected for example "
                f"{Path(first).with_suffix('.png')}, {Path(first).with_suffix('.xml')}, or COCO's JSON with file_name "
                f"{first!r}."
            )
        return cls(found, meaning)

    def __len__(self) -> int:
        return len(self.found)

    def arguments(self, place: int, image: Image, transform: Any, seed: Sequence[int]) -> dict[str, Tensor]:
        """What a prior is told about one image: `inside` for Energy, `mask` for RightReasons, and whether it is known.

        The mask goes where the image goes: resized, cropped, and, in an augmentation, drawn alike.
        """
        known = self.found.get(place)
        drawn = pillow().new("L", image.size, 0) if known is None else _drawn(known, image)
        mask = (_moved(drawn, transform, seed) > 0).float()
        if self.meaning == "only-here":
            mask = 1 - mask
        name = "inside" if self.meaning == "here" else "mask"
        return {
            name: mask if known is not None else torch.zeros_like(mask),
            f"has_{name}": torch.tensor(known is not None),
        }

    def kept(self, keep: Sequence[bool]) -> FolderMasks:
        """Of the images that are kept, by their new places."""
        places = {old: new for new, old in enumerate(i for i, one in enumerate(keep) if one)}
        return FolderMasks({places[i]: one for i, one in self.found.items() if i in places}, self.meaning)


def _files(folder: Path, names: Mapping[str, int]) -> dict[int, str | tuple[Box, ...]]:
    found: dict[int, str | tuple[Box, ...]] = {}
    for name, place in names.items():
        stem = folder / name
        picture = next((path for path in (stem.with_suffix(".png"), Path(f"{stem}.png")) if path.is_file()), None)
        boxes = next((path for path in (stem.with_suffix(".xml"), folder / f"{stem.stem}.xml") if path.is_file()), None)
        if picture is not None:
            found[place] = str(picture)
        elif boxes is not None:
            found[place] = _voc(boxes)
    return found


def _coco(path: Path, names: Mapping[str, int]) -> dict[int, str | tuple[Box, ...]]:
    """`file_name` is relative to the images' folder, or the bare name where no two images share one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        files = {image["id"]: str(image["file_name"]) for image in content["images"]}
        boxes: dict[Any, list[Box]] = {}
        for each in content["annotations"]:
            x, y, width, height = (float(number) for number in each["bbox"])
            boxes.setdefault(each["image_id"], []).append((x, y, x + width, y + height))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} cannot be read as COCO's annotations: {error!r}.") from error
    bare: dict[str, list[int]] = {}
    for name, place in names.items():
        bare.setdefault(Path(name).name, []).append(place)
    found: dict[int, str | tuple[Box, ...]] = {}
    for image, of_image in boxes.items():
        file = files.get(image, "")
        places = [names[file]] if file in names else bare.get(Path(file).name, [])
        if len(places) > 1:
            raise ConfigurationError(f"{path}: {file!r} may be any of {len(places)} images; give its folder too.")
        if places:
            found[places[0]] = tuple(of_image)
    return found


def _voc(path: Path) -> tuple[Box, ...]:
    """VOC's boxes count from 1 and include their last column and row."""
    text = path.read_text(encoding="utf-8")
    if "<!ENTITY" in text or "<!DOCTYPE" in text:
        raise StorageError(f"{path} declares a document type, which annotations do not need.")
    try:
        tree = ET.fromstring(text)  # noqa: S314  # without entities, as was looked for above
        corners = [
            [float(box.findtext(key, "")) for key in ("xmin", "ymin", "xmax", "ymax")] for box in tree.iter("bndbox")
        ]
    except (ET.ParseError, ValueError) as error:
        raise StorageError(f"{path} cannot be read as VOC's annotation: {error}.") from error
    return tuple((x0 - 1, y0 - 1, x1, y1) for x0, y0, x1, y1 in corners)


def _drawn(known: str | tuple[Box, ...], image: Image) -> Image:
    if isinstance(known, str):
        with pillow().open(known) as file:
            mask: Image = file.convert("L")
        if mask.size != image.size:
            raise StorageError(f"{known} has {mask.size} pixels, and its image {image.size}: save it in the same size.")
        return mask
    from axiograd._boxes import covered_pixels

    width, height = image.size
    covered = covered_pixels(torch.tensor(known), height, width).any(0)
    drawn: Image = pillow().fromarray((covered.numpy() * 255).astype("uint8"))
    return drawn


def _moved(mask: Image, transform: Any, seed: Sequence[int]) -> Tensor:
    """[1, height, width] where the image's pixels went."""
    if not isinstance(transform, Preprocess | Augment):
        raise ConfigurationError(
            "masks follow an image through axiograd's transforms alone: give size=, or a Preprocess."
        )
    return transform.place(mask, seed)
