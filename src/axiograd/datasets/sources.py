"""The data sets by name: where they are looked for and where to get them, NHANES I, small images, and ImageNet's."""

import csv
import gzip
import struct
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from axiograd._locate import cache_home, find, search_path
from axiograd.datasets.folders import ImageFiles, Transform, image_files, image_folder
from axiograd.datasets.images import IMAGENET, PIXELS, Augment
from axiograd.datasets.tables import read_frame, require_numbers
from axiograd.datasets.tensors import Root, TensorData, check_choice
from axiograd.errors import DataMissingError, StorageError


@dataclass(frozen=True)
class Entry:
    """One data set: its files in a folder of the data root, where they were looked for, and where to get them.

    >>> catalogue()[-1].loader, catalogue()[-1].present
    ('shapes', True)
    """

    loader: str
    name: str
    address: str
    licence: str
    notes: str = ""
    folder: str = ""
    files: Sequence[str] = ()
    present: bool = False
    path: Path | None = None
    looked_in: tuple[Path, ...] = ()

    def located(self, root: Root = None) -> "Entry":
        """With the folder that holds all the files, if there is one."""
        if not self.files:
            return replace(self, present=True)
        looked_in = search_path(self.folder, root)
        path = find(self.files, looked_in)
        return replace(self, present=path is not None, path=path, looked_in=looked_in)


def catalogue(root: Root = None) -> tuple[Entry, ...]:
    """All data sets, the one that needs no download last."""
    *files, shapes = (entry.located(root) for entry in _entries().values())
    by_loader = {entry.loader: entry for entry in files}
    made = [
        replace(by_loader[base], loader=loader, name=loader, notes=f"made from {base}")
        for loader, base in (("decoy", "fashion_mnist"), ("color_mnist", "mnist"))
    ]
    return (*files, *made, shapes)


@cache
def _entries() -> dict[str, Entry]:
    content = tomllib.loads(resources.files("axiograd.datasets").joinpath("sources.toml").read_text("utf-8"))
    return {loader: Entry(loader, **values) for loader, values in content.items()}


def require(*loaders: str, root: Root = None) -> tuple[Entry, Path]:
    """The first of these data sets that is here, and its folder; or DataMissingError with where to get them."""
    entries = [_entries()[loader].located(root) for loader in loaders]
    for entry in entries:
        if entry.path is not None:
            return entry, entry.path
    raise DataMissingError(
        " Or: ".join(
            f"{entry.name}: {', '.join(entry.files)} not found in {', '.join(map(str, entry.looked_in))}. Get it from "
            f"{entry.address} ({entry.licence}) and put it into {cache_home() / entry.folder}, or set AXIOGRAD_DATA to "
            f"the folder that holds {entry.folder}/."
            for entry in entries
        )
    )


def nhanes(root: Root = None, *, source: Literal["auto", "authors", "reconstructed"] = "auto") -> TensorData:
    """NHANES I: float64 inputs, NaN where a value is missing, target 1 for a survivor; `names` of features.

    `"auto"` takes the authors' file where it is given and the reconstructed one otherwise; `name` says which.
    """
    check_choice("source", source, ("auto", "authors", "reconstructed"))
    chosen = ("authors", "reconstructed") if source == "auto" else (source,)
    entry, folder = require(*(f"nhanes ({each})" for each in chosen), root=root)
    path = folder / entry.files[0]
    frame = read_frame(path)
    if entry.loader == "nhanes (authors)":
        features = frame.drop(columns="")  # the row's index
        survived = np.load(folder / entry.files[1], allow_pickle=False)
    else:
        features = frame.drop(columns=["seqn", "y_survived15"])
        survived = frame["y_survived15"].to_numpy()
    for name in features:
        require_numbers(features[name], f"{path}: column {name!r}")
    inputs = torch.tensor(features.to_numpy(), dtype=torch.float64)
    return TensorData(inputs, torch.tensor(survived, dtype=torch.float64), entry.name, tuple(features))


def mnist(split: str = "train", root: Root = None) -> TensorData:
    """Handwritten digits: inputs [n, 1, 28, 28] in [0, 1]; 60,000 for "train", 10,000 for "test"."""
    return _read_split("mnist", split, root, tuple("0123456789"))


def fashion_mnist(split: str = "train", root: Root = None) -> TensorData:
    """Pieces of clothing: inputs [n, 1, 28, 28] in [0, 1]; 60,000 for "train", 10,000 for "test"."""
    names = "T-shirt/top, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag, ankle boot"
    return _read_split("fashion_mnist", split, root, tuple(names.split(", ")))


def _read_split(loader: str, split: str, root: Root, names: tuple[str, ...]) -> TensorData:
    check_choice("split", split, ("train", "test"))
    entry, folder = require(loader, root=root)
    part = "train" if split == "train" else "t10k"
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz")
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz")
    return TensorData(images[:, None].float().div_(255), labels.long(), f"{entry.name} {split}", names)


def read_idx(path: Path) -> Tensor:
    """The bytes of a gzipped idx file: two zeros, type, number of axes, sizes (big-endian), values."""
    try:
        content = gzip.decompress(path.read_bytes())
        shape = struct.unpack_from(f">{content[3]}I", content, 4)
        values = np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * len(shape)).reshape(shape)
    except (OSError, EOFError, IndexError, ValueError, struct.error) as error:
        raise StorageError(f"{path} is not a complete idx file: {str(error).rstrip('.')}.") from error
    return torch.from_numpy(values.copy())


CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def cifar10(split: str = "train", root: Root = None) -> TensorData:
    """CIFAR-10 in memory, inputs [n, 3, 32, 32] in [0, 1], from its binary batches."""
    check_choice("split", split, ("train", "test"))
    entry, folder = require("cifar10", root=root)
    parts = []
    for file in entry.files[:5] if split == "train" else entry.files[5:]:
        # Records of one byte for the class and 3,072 for the image, channel after channel.
        content = np.fromfile(folder / file, dtype=np.uint8)
        if len(content) % 3073:
            raise StorageError(f"{folder / file} is damaged: {len(content)} bytes are not a multiple of 3073.")
        parts.append(content.reshape(-1, 3073))
    records = torch.from_numpy(np.concatenate(parts))
    images = records[:, 1:].reshape(-1, 3, 32, 32).float().div_(255)
    return TensorData(images, records[:, 0].long(), f"CIFAR-10 {split}", CIFAR10_NAMES)


def imagenet(
    split: str = "val",
    root: Root = None,
    *,
    augment: bool = False,
    transform: Transform | None = None,
    classes: Sequence[str] | None = None,
    seed: int = 0,
) -> ImageFiles:
    """ImageNet by wnid: short side 256, crop 224, normalised; or, with `augment=True`, random crop and flip.

    The index of a class is its place in `classes`, by default all wnids of train and val, sorted.
    """
    check_choice("split", split, ("train", "val"))
    _, folder = require("imagenet", root=root)
    if classes is None:
        # Both splits: one that lacks a class must not shift the indices of the others.
        places = [folder / each for each in ("train", "val") if (folder / each).is_dir()]
        classes = sorted({path.name for place in places for path in place.iterdir() if path.is_dir()})
    chosen = transform or (Augment() if augment else IMAGENET)
    name = f"ImageNet {split}"
    return image_folder(folder / split, transform=chosen, classes=classes, name=name, seed=seed)


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
    _, folder = require("imagenet_sample", root=root)
    with (folder / "labels.csv").open(newline="") as file:
        files = [(folder / row["file"], int(row["class_index"])) for row in csv.DictReader(file)]
    classes = [names[1] for names in imagenet_classes()]
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
) -> ImageFiles:
    """Tiny ImageNet, 20 or 200 classes by sorted wnid, with `boxes` [n, 4]: x0, y0, x1, y1, half-open."""
    check_choice("split", split, ("train", "val"))
    check_choice("classes", str(classes), ("20", "200"))
    source, folder = require("tiny_imagenet" if str(classes) == "20" else "tiny_imagenet (200)", root=root)
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
    corners = torch.tensor([[int(value) for value in known[path.name]] for path, _ in files])
    return ImageFiles(
        files,
        wnids,
        name=f"{source.name} {split}",
        transform=transform,
        seed=seed,
        # Those of the files include their last column and row, ours end before x1 and y1.
        boxes=corners + torch.tensor([0, 0, 1, 1]),
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
