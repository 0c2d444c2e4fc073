"""CIFAR-10 as image folders, or as the binary version's batches."""

from pathlib import Path

import numpy as np
import torch

from axiograd.datasets._source import DataSource
from axiograd.datasets.folders import image_folder
from axiograd.datasets.tensors import Root, TensorData, check_choice
from axiograd.errors import DataMissingError, StorageError

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar.html"
TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
FOLDERS = DataSource("CIFAR-10", "cifar10", ("train", "test"), ADDRESS, "not stated", "train/<class>/*.png")
BINARY = DataSource(
    "CIFAR-10 (binary version)",
    "cifar-10-batches-bin",
    (*TRAIN, "test_batch.bin"),
    ADDRESS,
    "not stated",
)
RECORD = 1 + 3 * 32 * 32


def cifar10(split: str = "train", root: Root = None) -> TensorData:
    """CIFAR-10 in memory, inputs [n, 3, 32, 32] in [0, 1], from folders by class or the binary batches."""
    check_choice("split", split, ("train", "test"))
    if (folder := FOLDERS.locate(root)) is not None:
        return image_folder(folder / split, classes=NAMES, name=f"CIFAR-10 {split}").load()
    if (folder := BINARY.locate(root)) is not None:
        names = TRAIN if split == "train" else ("test_batch.bin",)
        return read_batches([folder / name for name in names], f"CIFAR-10 {split}")
    looked = ", ".join(map(str, (*FOLDERS.looked_in(root), *BINARY.looked_in(root))))
    raise DataMissingError(
        f"CIFAR-10: neither train/ and test/ with a folder per class, nor all of data_batch_1.bin to "
        f"data_batch_5.bin and test_batch.bin, in {looked}. "
        f"Get the binary version from {ADDRESS} and set AXIOGRAD_DATA to what holds {BINARY.folder}/."
    )


def read_batches(paths: list[Path], name: str) -> TensorData:
    """Records of one byte for the class and 3072 for the image, channel after channel."""
    parts = []
    for path in paths:
        content = np.fromfile(path, dtype=np.uint8)
        if len(content) % RECORD or not len(content):
            raise StorageError(f"{path} is damaged: {len(content)} bytes are not a multiple of {RECORD}.")
        parts.append(content.reshape(-1, RECORD))
    records = torch.from_numpy(np.concatenate(parts))
    images = records[:, 1:].reshape(-1, 3, 32, 32).float().div_(255)
    return TensorData(images, records[:, 0].long(), name, NAMES)
