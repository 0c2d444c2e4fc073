"""MNIST and Fashion-MNIST from their idx files."""

import gzip
import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from axiograd.datasets._source import DataSource
from axiograd.datasets.tensors import Root, TensorData, check_choice
from axiograd.errors import StorageError

FILES = tuple(f"{part}-{what}-ubyte.gz" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1"))
UNSIGNED_BYTE = 8

MNIST = DataSource("MNIST", "mnist", FILES, "https://ossci-datasets.s3.amazonaws.com/mnist/", "CC BY-SA 3.0")
FASHION_MNIST = DataSource(
    "Fashion-MNIST",
    "fashion-mnist",
    FILES,
    "https://github.com/zalandoresearch/fashion-mnist, or Debian's package dataset-fashion-mnist",
    "MIT",
    elsewhere=("/usr/share/datasets/fashion-mnist", "/usr/share/dataset-fashion-mnist"),
)
CLOTHES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)


def mnist(split: str = "train", root: Root = None) -> TensorData:
    """Handwritten digits: inputs [n, 1, 28, 28] in [0, 1]; 60,000 for "train", 10,000 for "test"."""
    return read_split(MNIST, split, root, tuple("0123456789"))


def fashion_mnist(split: str = "train", root: Root = None) -> TensorData:
    """Pieces of clothing: inputs [n, 1, 28, 28] in [0, 1]; 60,000 for "train", 10,000 for "test"."""
    return read_split(FASHION_MNIST, split, root, CLOTHES)


def read_split(source: DataSource, split: str, root: Root, names: tuple[str, ...]) -> TensorData:
    """The images and labels of a split."""
    check_choice("split", split, ("train", "test"))
    folder = source.require(root)
    part = "train" if split == "train" else "t10k"
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz")
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz")
    if len(images) != len(labels):
        raise StorageError(f"{folder}: {len(images)} images but {len(labels)} labels for {split!r}.")
    return TensorData(images[:, None].float().div_(255), labels.long(), f"{source.name} {split}", names)


def read_idx(path: Path) -> Tensor:
    """The bytes of a gzipped idx file: two zeros, type, number of axes, sizes (big-endian), values."""
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError) as error:
        raise StorageError(f"{path} is damaged: {str(error).rstrip('.')}.") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != UNSIGNED_BYTE:  # noqa: PLR2004  (the header's size)
        raise StorageError(f"{path} is not an idx file of bytes: it begins with {content[:4].hex()}.")
    axes = content[3]
    start = 4 + 4 * axes
    shape = struct.unpack_from(f">{axes}I", content, 4) if len(content) >= start else ()
    if not shape or len(content) - start != int(np.prod(shape)):
        raise StorageError(f"{path} is damaged: {len(content) - start} values for the shape {shape}.")
    return torch.from_numpy(np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape).copy())
