"""Image files on disk as a data set, with their masks; damaged files are reported, or left out on request and recorded.

Masks are PNG files, or boxes as COCO and VOC store them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree as ET

import torch
from torch import Tensor
from torch.utils.data import Dataset

from axiograd._boxes import covered_pixels
from axiograd.datasets.images import PIXELS, Augment, DamagedImageError, Preprocess, decode, pillow
from axiograd.datasets.tensors import TensorData, check_choice
from axiograd.errors import ConfigurationError, DataMissingError, StorageError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = {".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".avif", ".heic", ".heif"}

Transform = Callable[["Image", Sequence[int]], Tensor]
Meaning = Literal["here", "only-here", "not-here"]
Box = tuple[float, float, float, float]
#: A PNG file, or boxes (x0, y0, x1, y1) in the image's pixels.
MaskSource = Path | tuple[Box, ...]


@dataclass(frozen=True)
class Skipped:
    """A file that was left out, and why."""

    path: Path
    reason: str


class ImageFiles(Dataset[tuple[Any, ...]]):
    """Image files with a class each; an item is (transform(image), class), and with masks a prior's arguments after it.

    What is random in a transform depends on `seed`, the epoch and the index alone, so any number of worker
    processes gives the same images; `set_epoch` brings new ones. `on_damaged="skip"` decodes every file once
    to find those to leave out, and lists them in `skipped`; otherwise reading one raises DamagedImageError.
    """

    def __init__(
        self,
        files: Sequence[tuple[Path, int]],
        classes: Sequence[str],
        *,
        name: str,
        transform: Transform = PIXELS,
        seed: int = 0,
        on_damaged: str = "error",
        boxes: Tensor | None = None,
        masks: FolderMasks | None = None,
        grey: bool = False,
    ) -> None:
        check_choice("on_damaged", on_damaged, ("error", "skip"))
        self.name, self.classes, self.transform, self.seed = name, tuple(classes), transform, seed
        self.skipped: tuple[Skipped, ...] = ()
        kept = list(range(len(files)))
        if on_damaged == "skip":
            with ThreadPoolExecutor() as pool:
                verdicts = list(pool.map(_why_damaged, (path for path, _ in files)))
            self.skipped = tuple(verdict for verdict in verdicts if verdict is not None)
            kept = [i for i in kept if verdicts[i] is None]
        # Strings and one tensor: a million tuples of Path objects would be copied into every worker.
        self.paths = [str(files[i][0]) for i in kept]
        self.targets = torch.tensor([files[i][1] for i in kept], dtype=torch.long)
        self.boxes = None if boxes is None else boxes[kept]
        self.masks, self.grey = masks, grey
        # In shared memory, so that workers that live on from epoch to epoch see a change.
        self._epoch = torch.zeros(1, dtype=torch.long)
        self._epoch.share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Draw the augmentation of this epoch, as with a DistributedSampler."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        image = decode(Path(self.paths[index]))
        seed = (self.seed, int(self._epoch), index % len(self))
        inputs = (
            self.transform(image.convert("L").convert("RGB"), seed)[:1] if self.grey else self.transform(image, seed)
        )
        item = inputs, int(self.targets[index])
        if self.masks is None:
            return item
        return (*item, self.masks.arguments(self.paths[index], image, self.transform, seed))

    def load(self, indices: Iterable[int] | None = None) -> TensorData:
        """The images, or some of them, in memory; all must have the same size."""
        chosen = list(range(len(self)) if indices is None else indices)
        inputs = [self[i][0] for i in chosen]
        if len(shapes := {tuple(image.shape) for image in inputs}) > 1:
            raise ConfigurationError(f"{self.name}: images of different shapes {sorted(shapes)}; give a transform.")
        rows = torch.tensor(chosen, dtype=torch.long)
        boxes = None if self.boxes is None else self.boxes[rows]
        return TensorData(torch.stack(inputs), self.targets[rows], self.name, self.classes, boxes=boxes)

    def __repr__(self) -> str:
        left_out = f", {len(self.skipped)} skipped" if self.skipped else ""
        return f"ImageFiles({self.name!r}: {len(self)} images of {len(self.classes)} classes{left_out})"


def image_folder(
    root: str | Path,
    *,
    transform: Transform = PIXELS,
    classes: Sequence[str] | None = None,
    name: str | None = None,
    seed: int = 0,
    on_damaged: str = "error",
    size: int | None = None,
    grey: bool = False,
    augment: bool = False,
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
    masks: str | Path | None = None,
    masks_mean: Meaning = "here",
) -> ImageFiles:
    """Images in one folder per class; the classes are the sorted folder names, or those given.

    `size` brings the short side there and crops the middle, then (v − mean)/std, v in [0, 1]; `grey` makes one channel;
    with `augment`, a random part of the image at that size. `masks` is a folder in the same layout with PNG masks or
    VOC's XML files, or COCO's JSON: what they cover is where the class may be seen ("here", for `Energy`), the only
    such place ("only-here", for `RightReasons`) or where it must not be ("not-here", for `RightReasons`).
    """
    root = Path(root)
    if size is not None:
        whole = Preprocess(size, size, tuple(map(float, mean)), tuple(map(float, std)))
        transform = Augment(size, replace(whole, resize=None, crop=None)) if augment else whole
    elif augment:
        raise ConfigurationError("augment=True needs size=…, the side of the random crop.")
    if not root.is_dir():
        raise DataMissingError(f"no folder {root}.")
    found = class_folders(root)
    if classes is not None and (unknown := [each for each in found if each not in classes]):
        raise ConfigurationError(f"{root} has folders that are not among the classes given: {unknown[:5]}.")
    order = list(classes) if classes is not None else found
    places = {each: place for place, each in enumerate(order)}
    files = [(path, places[each]) for each in found for path in image_files(root / each)]
    if not files:
        raise DataMissingError(f"{root} holds no images in folders by class: move each image into its class's folder.")
    found_masks = None if masks is None else FolderMasks.find(masks, [str(path) for path, _ in files], root, masks_mean)
    return ImageFiles(
        files,
        order,
        name=name or root.name,
        transform=transform,
        seed=seed,
        on_damaged=on_damaged,
        masks=found_masks,
        grey=grey,
    )


def image_files(folder: Path) -> list[Path]:
    """All images below a folder, sorted; not what programs hide there (`.ipynb_checkpoints`, macOS's `._1.jpg`)."""
    found = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    return sorted(path for path in found if not any(map(_hidden, path.relative_to(folder).parts)))


def class_folders(root: Path) -> list[str]:
    """The names of the folders that stand for classes, sorted."""
    return sorted(path.name for path in root.iterdir() if path.is_dir() and not _hidden(path.name))


def _hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _why_damaged(path: Path) -> Skipped | None:
    try:
        decode(path)
    except DamagedImageError as error:
        return Skipped(path, str(error.__cause__))
    return None


@dataclass(frozen=True)
class FolderMasks:
    """The masks of image files, by the image's path."""

    found: Mapping[str, MaskSource]
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
        found: dict[str, MaskSource] = {}
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
            raise ConfigurationError("masks can follow axiograd's own transforms only: give size=, or a Preprocess.")
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


def _named_masks(source: Path) -> Mapping[Path, MaskSource]:
    """All masks by the names of their images, with or without an ending."""
    if source.is_dir():
        files = [*sorted(source.rglob("*.xml")), *sorted(source.rglob("*.png"))]
        return {file.relative_to(source).with_suffix(""): file for file in files}
    if source.is_file() and source.suffix.lower() == ".json":
        return _coco(source)
    raise DataMissingError(f"masks {source}: there is no such folder, and no COCO JSON file of that name.")


def _coco(path: Path) -> dict[Path, MaskSource]:
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
