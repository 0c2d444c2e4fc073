"""Image files on disk as a data set: damaged files are reported, or left out on request and recorded."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from axiograd.datasets.images import PIXELS, Augment, DamagedImageError, Preprocess, decode
from axiograd.datasets.masks import FolderMasks, Meaning
from axiograd.datasets.tensors import TensorData, check_choice
from axiograd.errors import ConfigurationError, DataMissingError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = {".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".avif", ".heic", ".heif"}

Transform = Callable[["Image", Sequence[int]], Tensor]


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
        self.masks = masks
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
        item = self.transform(image, seed), int(self.targets[index])
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
    augment: bool = False,
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
    masks: str | Path | None = None,
    masks_mean: Meaning = "here",
) -> ImageFiles:
    """Images in one folder per class; the classes are the sorted folder names, or those given.

    `size` brings the short side there and crops the middle, then (v − mean)/std, v in [0, 1]; with `augment`, a random
    part of the image at that size. `masks` is a folder in the same layout with PNG masks or VOC's XML files, or
    COCO's JSON: what they cover is where the class may be seen ("here", for `Energy`), the only such place
    ("only-here", for `RightReasons`) or where it must not be ("not-here", for `RightReasons`).
    """
    root = Path(root)
    if size is not None:
        whole = Preprocess(size, size, tuple(map(float, mean)), tuple(map(float, std)))
        transform = Augment(size, replace(whole, resize=None, crop=None)) if augment else whole
    elif augment:
        raise ConfigurationError("augment=True needs size=…, that of the part which is cut out.")
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
