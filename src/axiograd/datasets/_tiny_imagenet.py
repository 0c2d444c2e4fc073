"""Tiny ImageNet with its bounding boxes: 64 × 64 pixels, 500 training and 50 validation images per class."""

from pathlib import Path

import torch
from torch import Tensor

from axiograd._boxes import covered_pixels
from axiograd.datasets._imagenet import imagenet_classes
from axiograd.datasets._source import DataSource
from axiograd.datasets.folders import ImageFiles, Transform, image_files
from axiograd.datasets.tensors import Root, check_choice
from axiograd.datasets.transforms import PIXELS
from axiograd.errors import StorageError

TINY_20 = DataSource(
    "Tiny ImageNet, 20 classes",
    "tiny-imagenet-20",
    ("classes.txt", "train", "val"),
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    "research use",
    "every tenth of the 200 classes; val/<wnid>/images like train",
)
TINY_200 = DataSource(
    "Tiny ImageNet",
    "tiny-imagenet-200",
    ("wnids.txt", "train", "val"),
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    "research use",
)
#: Class i of the small set is class 10·i of the 200 sorted wnids, which a network for all 200 predicts.
TINY_20_STEP = 10
TINY_20_WNIDS = [
    "n01443537",
    "n01784675",
    "n02002724",
    "n02123045",
    "n02231487",
    "n02410509",
    "n02669723",
    "n02814533",
    "n02909870",
    "n03026506",
    "n03255030",
    "n03584254",
    "n03770439",
    "n03937543",
    "n04070727",
    "n04259630",
    "n04398044",
    "n04532670",
    "n07615774",
    "n07871810",
]


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
    source = TINY_20 if classes == 20 else TINY_200  # noqa: PLR2004  (checked in the line above)
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
        boxes=box_tensor(files, known),
    )


def tiny_imagenet_classes() -> tuple[tuple[str, ...], ...]:
    """Of each of the 200 classes by sorted wnid the wnid and its names; nothing for those that the small set lacks.

    >>> tiny_imagenet_classes()[30][:2], tiny_imagenet_classes()[31]
    (('n02123045', 'tabby'), ())
    """
    by_wnid = {names[0]: names for names in imagenet_classes()}
    named: list[tuple[str, ...]] = [()] * (TINY_20_STEP * len(TINY_20_WNIDS))
    named[::TINY_20_STEP] = [by_wnid[wnid] for wnid in TINY_20_WNIDS]
    return tuple(named)


def box_tensor(files: list[tuple[Path, int]], known: dict[str, list[str]]) -> Tensor:
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
