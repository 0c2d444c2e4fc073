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

from axiograd._boxes import covered_pixels
from axiograd.datasets.images import Augment, Preprocess, pillow
from axiograd.datasets.tensors import check_choice
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
    def find(cls, masks: str | Path, paths: Sequence[str], root: Path | None, meaning: Meaning = "here") -> FolderMasks:
        """Masks of images below `root`: a folder of PNG or of VOC's XML files, or COCO's JSON file.

        Of images that were named one by one (`root` None), the end of the path decides, the longest that has a mask.
        """
        check_choice("masks_mean", meaning, MEANINGS)
        source = Path(masks)
        known = [str(path if root is None else Path(path).relative_to(root)) for path in paths]
        names = {(_end_with_mask(source, name) if root is None else name): i for i, name in enumerate(known)}
        if len(names) < len(known):
            raise ConfigurationError(
                f"{masks}: images of different folders share a name; give their folder as a whole."
            )
        if source.is_file() and source.suffix.lower() == ".json":
            found: Mapping[int, str | tuple[Box, ...]] = _coco(source, names)
        elif source.is_dir():
            found = _files(source, names)
        else:
            raise DataMissingError(f"masks {masks}: there is no such folder, and no JSON file of COCO's of that name.")
        if not found:
            first = known[0] if root is not None else Path(known[0]).name
            whose = "of the images" if root is None else f"image of {root}"
            raise DataMissingError(
                f"{masks} has no mask for any {whose}: expected for example "
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
        drawn = pillow().new("L", image.size, 0) if known is None else _drawn(known, image.size)
        mask = (_moved(drawn, transform, seed) > 0).float()
        if self.meaning == "only-here":
            mask = 1 - mask
        name = "inside" if self.meaning == "here" else "mask"
        return {
            name: mask if known is not None else torch.zeros_like(mask),
            f"has_{name}": torch.tensor(known is not None),
        }

    def region(self, place: int, size: tuple[int, int], transform: Preprocess) -> Tensor | None:
        """True [height, width] where the mask is in what the model sees; None without one. `size` is the image's."""
        known = self.found.get(place)
        return None if known is None else transform.place(_drawn(known, size))[0] > 0

    def kept(self, keep: Sequence[bool]) -> FolderMasks:
        """Of the images that are kept, by their new places."""
        places = {old: new for new, old in enumerate(i for i, one in enumerate(keep) if one)}
        return FolderMasks({places[i]: one for i, one in self.found.items() if i in places}, self.meaning)


def _files(folder: Path, names: Mapping[str, int]) -> dict[int, str | tuple[Box, ...]]:
    """A file of VOC's without a box is as good as none."""
    found: dict[int, str | tuple[Box, ...]] = {}
    used: dict[Path, str] = {}
    for name, place in names.items():
        path = _file_of(folder, name)
        if path is None:
            continue
        if path in used:
            raise ConfigurationError(
                f"{path} may belong to {used[path]} or to {name}: put it in the folder of its image."
            )
        used[path] = name
        known = _voc(path) if path.suffix == ".xml" else str(path)
        if known:
            found[place] = known
    return found


def _file_of(folder: Path, name: str) -> Path | None:
    """The mask of an image, by its name with or without its own ending; VOC's files may lie flat."""
    stem = folder / name
    tried = (stem.with_suffix(".png"), Path(f"{stem}.png"), stem.with_suffix(".xml"), folder / f"{stem.stem}.xml")
    return next((path for path in tried if path.is_file()), None)


def _coco(path: Path, names: Mapping[str, int]) -> dict[int, str | tuple[Box, ...]]:
    """`file_name` and the image's path are equal, or one is the end of the other, and no other image's."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        files = {image["id"]: str(image["file_name"]) for image in content["images"]}
        boxes: dict[Any, list[Box]] = {}
        for each in content["annotations"]:
            x, y, width, height = (float(number) for number in each["bbox"])
            boxes.setdefault(each["image_id"], []).append((x, y, x + width, y + height))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} cannot be read as COCO's annotations: {error!r}.") from error
    by_name: dict[str, list[tuple[tuple[str, ...], int]]] = {}
    for name, place in names.items():
        by_name.setdefault(Path(name).name, []).append((Path(name).parts, place))
    found: dict[int, str | tuple[Box, ...]] = {}
    for image, of_image in boxes.items():
        file = files.get(image, "")
        parts = Path(file).parts
        near = [(own, i) for own, i in by_name.get(Path(file).name, []) if _one_ends_the_other(own, parts)]
        places = [i for own, i in near if own == parts] or [i for _, i in near]
        if len(places) > 1:
            raise ConfigurationError(f"{path}: {file!r} may be any of {len(places)} images; give its folder too.")
        if places and places[0] in found:
            raise ConfigurationError(
                f"{path}: {file!r} and another image of it may be the same; give their folders too."
            )
        if places:
            found[places[0]] = tuple(of_image)
    return found


def _one_ends_the_other(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    n = min(len(one), len(other))
    return n > 0 and one[-n:] == other[-n:]


def _voc(path: Path) -> tuple[Box, ...]:
    """VOC's boxes count from 1 and include their last column and row."""
    try:
        text = path.read_text(encoding="utf-8")
        if "<!ENTITY" in text or "<!DOCTYPE" in text:
            raise ValueError("it declares a document type, which annotations do not need.")  # noqa: TRY301
        tree = ET.fromstring(text)  # noqa: S314  # without entities, as was looked for above
        corners = [
            [float(box.findtext(key, "")) for key in ("xmin", "ymin", "xmax", "ymax")] for box in tree.iter("bndbox")
        ]
    except (ET.ParseError, ValueError, OSError) as error:
        raise StorageError(f"{path} cannot be read as VOC's annotation: {str(error).rstrip('.')}.") from error
    return tuple((x0 - 1, y0 - 1, x1, y1) for x0, y0, x1, y1 in corners)


def _end_with_mask(source: Path, name: str) -> str:
    """The longest end of a path for which there is a file; where boxes are in one file, the path itself."""
    parts = Path(name).parts
    ends = [str(Path(*parts[i:])) for i in range(len(parts)) if parts[i] != Path(name).anchor]
    return next((end for end in ends if source.is_dir() and _file_of(source, end) is not None), name)


def _drawn(known: str | tuple[Box, ...], size: tuple[int, int]) -> Image:
    """The mask of an image of so many pixels, width first, as grey."""
    if isinstance(known, str):
        mask = open_mask(known)
        if mask.size != size:
            raise StorageError(
                f"the mask {known} has {mask.width} × {mask.height} pixels, and its image {size[0]} × {size[1]}: save "
                "it in the same size."
            )
        return mask
    width, height = size
    covered = covered_pixels(torch.tensor(known), height, width).any(0)
    drawn: Image = pillow().fromarray((covered.numpy() * 255).astype("uint8"))
    return drawn


def open_mask(path: str | Path) -> Image:
    """The PNG file of a mask, as grey."""
    try:
        with pillow().open(path) as file:
            mask: Image = file.convert("L")
    except (OSError, SyntaxError, ValueError) as error:
        raise StorageError(f"the mask {path} cannot be read: {str(error).rstrip('.')}.") from error
    return mask


def _moved(mask: Image, transform: Any, seed: Sequence[int]) -> Tensor:
    """[1, height, width] where the image's pixels went."""
    if not isinstance(transform, Preprocess | Augment):
        raise ConfigurationError(
            "masks follow an image through axiograd's transforms alone: give size=, or a Preprocess."
        )
    return transform.place(mask, seed)
