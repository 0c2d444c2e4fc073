"""ImageNet's folders, five hundred of its photos, and Tiny ImageNet with its bounding boxes."""

import csv
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from axiograd._boxes import covered_pixels
from axiograd.datasets.folders import ImageFiles, Transform, image_files, image_folder
from axiograd.datasets.images import IMAGENET, PIXELS, Augment
from axiograd.datasets.sources import SOURCES
from axiograd.datasets.tensors import Root, check_choice
from axiograd.errors import StorageError


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
    folder = SOURCES["imagenet"].require(root)
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
    folder = SOURCES["imagenet_sample"].require(root)
    try:
        with (folder / "labels.csv").open(newline="") as file:
            rows = [(row["file"], int(row["class_index"])) for row in csv.DictReader(file)]
    except (KeyError, ValueError) as error:
        raise StorageError(f"{folder / 'labels.csv'} lacks file or class_index: {error}.") from error
    classes = [names[1] for names in imagenet_classes()]
    files = [(folder / file, index) for file, index in rows]
    name = f"{len(files)} ImageNet photos, probably training images"
    return ImageFiles(files, classes, name=name, transform=transform)


#: Class i of the small set is class 10·i of the 200 sorted wnids, which a network for all 200 predicts.
TINY_20_WNIDS = (
    *("n01443537", "n01784675", "n02002724", "n02123045", "n02231487", "n02410509", "n02669723"),
    *("n02814533", "n02909870", "n03026506", "n03255030", "n03584254", "n03770439", "n03937543"),
    *("n04070727", "n04259630", "n04398044", "n04532670", "n07615774", "n07871810"),
)


def tiny_imagenet(
    split: str = "train",
    root: Root = None,
    *,
    classes: int = 20,
    transform: Transform = PIXELS,
    seed: int = 0,
    on_damaged: str = "error",
) -> ImageFiles:
    """Tiny ImageNet, 20 or 200 classes by sorted wnid, with `boxes` [n, 4]: x0, y0, x1, y1, half-open."""
    check_choice("split", split, ("train", "val"))
    check_choice("classes", str(classes), ("20", "200"))
    source = SOURCES["tiny_imagenet" if classes == 20 else "tiny_imagenet (200)"]  # noqa: PLR2004  (checked above)
    folder = source.require(root)
    wnids = sorted(line.split()[0] for line in (folder / source.files[0]).read_text().splitlines() if line.strip())
    if (annotations := folder / split / "val_annotations.txt").is_file():
        rows = [line.split("\t") for line in annotations.read_text().splitlines()]
        files = [(folder / split / "images" / row[0], wnids.index(row[1])) for row in rows]
        known = {row[0]: row[2:6] for row in rows}
    else:
        files, known = [], {}
        for target, wnid in enumerate(wnids):
            files += [(path, target) for path in image_files(folder / split / wnid)]
            lines = (folder / split / wnid / f"{wnid}_boxes.txt").read_text().splitlines()
            known |= {row[0]: row[1:5] for row in (line.split("\t") for line in lines)}
    return ImageFiles(
        files,
        wnids,
        name=f"{source.name} {split}",
        transform=transform,
        seed=seed,
        on_damaged=on_damaged,
        boxes=_box_tensor(files, known),
    )


def tiny_imagenet_classes() -> tuple[tuple[str, ...], ...]:
    """Of each of the 200 classes by sorted wnid the wnid and its names; nothing for those that the small set lacks.

    >>> tiny_imagenet_classes()[30][:2], tiny_imagenet_classes()[31]
    (('n02123045', 'tabby'), ())
    """
    by_wnid = {names[0]: names for names in imagenet_classes()}
    named: list[tuple[str, ...]] = [()] * 200
    named[::10] = [by_wnid[wnid] for wnid in TINY_20_WNIDS]
    return tuple(named)


def _box_tensor(files: list[tuple[Path, int]], known: dict[str, list[str]]) -> Tensor:
    """The boxes in the order of the files; those include their last column and row, ours end before x1 and y1."""
    try:
        corners = torch.tensor([[int(value) for value in known[path.name]] for path, _ in files])
        return corners + torch.tensor([0, 0, 1, 1])
    except KeyError as error:
        raise StorageError(f"there is no bounding box for {error.args[0]}.") from error


def box_masks(boxes: Tensor, height: int, width: int) -> Tensor:
    """Masks [n, 1, height, width] of boxes [n, 4], as `axiograd.metrics.boxes_to_masks`, with a channel.

    >>> box_masks(torch.tensor([[1, 0, 3, 2]]), 3, 4)[0, 0].int()
    tensor([[0, 1, 1, 0],
            [0, 1, 1, 0],
            [0, 0, 0, 0]], dtype=torch.int32)
    """
    return covered_pixels(boxes, height, width).unsqueeze(1)
