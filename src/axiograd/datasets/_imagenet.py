"""ImageNet: the folders of the full set, and five hundred photos with their classes."""

import csv
from collections.abc import Sequence
from functools import cache
from importlib import resources

from axiograd.datasets._source import DataSource
from axiograd.datasets.folders import ImageFiles, Transform, image_folder
from axiograd.datasets.tensors import Root, check_choice
from axiograd.datasets.transforms import IMAGENET, Augment
from axiograd.errors import StorageError

IMAGENET_FOLDERS = DataSource(
    "ImageNet (ILSVRC 2012)",
    "imagenet",
    ("val",),
    "https://image-net.org/challenges/LSVRC/2012/",
    "research use, after registration",
    "train/<wnid>/*.JPEG and val/<wnid>/*.JPEG",
)
SAMPLE = DataSource(
    "ImageNet photos",
    "imagenet-sample",
    ("labels.csv",),
    "https://github.com/EliSchwartz/imagenet-sample-images",
    "research use",
    "500 photos, every second class, short side 256; probably training images: no validation accuracy",
)


def imagenet(
    split: str = "val",
    root: Root = None,
    *,
    augment: bool = False,
    transform: Transform | None = None,
    classes: Sequence[str] | None = None,
    seed: int = 0,
    on_damaged: str = "error",
) -> ImageFiles:
    """ImageNet by wnid: short side 256, crop 224, normalised; or, with `augment=True`, random crop and flip.

    The index of a class is its place in `classes`, by default all wnids of train and val, sorted.
    """
    check_choice("split", split, ("train", "val"))
    folder = IMAGENET_FOLDERS.require(root)
    if classes is None:
        # Both splits: one that lacks a class must not shift the indices of the others.
        places = [folder / each for each in ("train", "val") if (folder / each).is_dir()]
        classes = sorted({path.name for place in places for path in place.iterdir() if path.is_dir()})
    chosen = transform or (Augment() if augment else IMAGENET)
    name = f"ImageNet {split}"
    return image_folder(folder / split, transform=chosen, classes=classes, name=name, seed=seed, on_damaged=on_damaged)


@cache
def imagenet_classes() -> tuple[tuple[str, ...], ...]:
    """Of each of the thousand classes the wnid and its names, the usual one first.

    >>> imagenet_classes()[360][:2]
    ('n02444819', 'otter')
    """
    lines = resources.files("axiograd.datasets").joinpath("imagenet_classes.txt").read_text("utf-8").splitlines()
    return tuple((line[:9], *line[10:].split(", ")) for line in lines)


def imagenet_sample(root: Root = None, *, transform: Transform = IMAGENET) -> ImageFiles:
    """Five hundred ImageNet photos with their index among the thousand classes; `classes[i]` is a name."""
    folder = SAMPLE.require(root)
    try:
        with (folder / "labels.csv").open(newline="") as file:
            rows = [(row["file"], int(row["class_index"])) for row in csv.DictReader(file)]
    except (KeyError, ValueError) as error:
        raise StorageError(f"{folder / 'labels.csv'} lacks file or class_index: {error}.") from error
    classes = [names[1] for names in imagenet_classes()]
    files = [(folder / file, index) for file, index in rows]
    name = f"{len(files)} ImageNet photos, probably training images"
    return ImageFiles(files, classes, name=name, transform=transform)
