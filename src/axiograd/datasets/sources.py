"""Where data sets are looked for, where to get them, and the small ones: NHANES I, MNIST, Fashion-MNIST, CIFAR-10."""

import csv
import gzip
import hashlib
import io
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from axiograd._locate import cache_home, find, search_path
from axiograd.datasets.folders import image_folder
from axiograd.datasets.tensors import Root, TensorData, check_choice
from axiograd.errors import DataMissingError, StorageError


@dataclass(frozen=True)
class DataSource:
    """The files of a data set, in a folder of the data root.

    >>> DataSource("Nothing", "nothing", ("a.csv",), "https://example.org", "MIT").locate("/nowhere") is None
    True
    """

    name: str
    folder: str
    files: tuple[str, ...]
    address: str
    licence: str
    notes: str = ""
    #: Folders outside the data root where a distribution puts the files.
    elsewhere: tuple[str, ...] = ()

    def looked_in(self, root: Root = None) -> tuple[Path, ...]:
        """The folders that are searched, in this order."""
        return (*search_path(self.folder, root), *(Path(path) for path in self.elsewhere))

    def locate(self, root: Root = None) -> Path | None:
        """The folder that holds all the files, or None."""
        return find(self.files, self.looked_in(root))

    def require(self, root: Root = None) -> Path:
        """The folder that holds all the files, or DataMissingError with what to do."""
        path = self.locate(root)
        if path is None:
            raise self.missing(root)
        return path

    def missing(self, root: Root = None) -> DataMissingError:
        """What was not found, where it was looked for, and where to get it."""
        looked = ", ".join(map(str, self.looked_in(root)))
        return DataMissingError(
            f"{self.name}: {', '.join(self.files)} not found in {looked}. Get it from {self.address} "
            f"({self.licence}) and put it into {cache_home() / self.folder}, or set AXIOGRAD_DATA to the "
            f"folder that holds {self.folder}/."
        )


_IDX = tuple(f"{part}-{what}-ubyte.gz" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1"))
_BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
_CIFAR = "https://www.cs.toronto.edu/~kriz/cifar.html"
_TINY = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"

#: By the name of the loader, with the variant where there are two.
SOURCES = {
    "nhanes (authors)": DataSource(
        "NHANES I (the authors' file)",
        "nhanes",
        ("X_sparsity.csv", "y_sparsity.npy"),
        "https://github.com/visinf/fast-axiomatic-attribution, folder sparsity",
        "US government, public use",
        "13,442 subjects × 118 features, as in the paper; checked by its git blob id",
    ),
    "nhanes (reconstructed)": DataSource(
        "reconstructed NHANES I",
        "nhanes",
        ("nhanes_reconstructed.csv.gz",),
        "https://wwwn.cdc.gov/nchs/nhanes/nhanes1/",
        "US government, public use",
        "13,315 subjects × 106 features, rebuilt from the public tables",
    ),
    "mnist": DataSource("MNIST", "mnist", _IDX, "https://ossci-datasets.s3.amazonaws.com/mnist/", "CC BY-SA 3.0"),
    "fashion_mnist": DataSource(
        "Fashion-MNIST",
        "fashion-mnist",
        _IDX,
        "https://github.com/zalandoresearch/fashion-mnist, or Debian's package dataset-fashion-mnist",
        "MIT",
        elsewhere=("/usr/share/datasets/fashion-mnist", "/usr/share/dataset-fashion-mnist"),
    ),
    "cifar10": DataSource("CIFAR-10", "cifar10", ("train", "test"), _CIFAR, "not stated", "train/<class>/*.png"),
    "cifar10 (binary)": DataSource(
        "CIFAR-10 (binary version)", "cifar-10-batches-bin", (*_BATCHES, "test_batch.bin"), _CIFAR, "not stated"
    ),
    "tiny_imagenet": DataSource(
        "Tiny ImageNet, 20 classes",
        "tiny-imagenet-20",
        ("classes.txt", "train", "val"),
        _TINY,
        "research use",
        "every tenth of the 200 classes; val/<wnid>/images like train",
    ),
    "tiny_imagenet (200)": DataSource(
        "Tiny ImageNet", "tiny-imagenet-200", ("wnids.txt", "train", "val"), _TINY, "research use"
    ),
    "imagenet": DataSource(
        "ImageNet (ILSVRC 2012)",
        "imagenet",
        ("val",),
        "https://image-net.org/challenges/LSVRC/2012/",
        "research use, after registration",
        "train/<wnid>/*.JPEG and val/<wnid>/*.JPEG",
    ),
    "imagenet_sample": DataSource(
        "ImageNet photos",
        "imagenet-sample",
        ("labels.csv",),
        "https://github.com/EliSchwartz/imagenet-sample-images",
        "research use",
        "500 photos, every second class, short side 256; probably training images: no validation accuracy",
    ),
}
#: Made from another set, which must be there.
DERIVED = {"decoy": "fashion_mnist", "color_mnist": "mnist"}


@dataclass(frozen=True)
class Entry:
    """One data set: whether it is here, where it was looked for, where to get it, and under which licence."""

    loader: str
    name: str
    present: bool
    path: Path | None
    looked_in: tuple[Path, ...]
    address: str
    licence: str
    notes: str


def catalogue(root: Root = None) -> tuple[Entry, ...]:
    """All data sets, those that need no download last.

    >>> catalogue()[-1].loader, catalogue()[-1].present
    ('shapes', True)
    """
    entries = []
    for loader, name in ({each: each for each in SOURCES} | DERIVED).items():
        source = SOURCES[name]
        path = source.locate(root)
        title, notes = (loader, f"made from {name}") if loader in DERIVED else (source.name, source.notes)
        looked = source.looked_in(root)
        entries.append(Entry(loader, title, path is not None, path, looked, source.address, source.licence, notes))
    shapes = Entry("shapes", "shapes", True, None, (), "made by axiograd", "Apache-2.0", "procedural")
    return (*entries, shapes)


def nhanes(root: Root = None, *, source: Literal["auto", "authors", "reconstructed"] = "auto") -> TensorData:
    """NHANES I: float64 inputs, NaN where a value is missing, target 1 for a survivor; `names` of features.

    `"auto"` takes the authors' file where it is given and the reconstructed one otherwise; `name` says which.
    """
    check_choice("source", source, ("auto", "authors", "reconstructed"))
    theirs, ours = SOURCES["nhanes (authors)"], SOURCES["nhanes (reconstructed)"]
    if source == "authors" or (source == "auto" and theirs.locate(root) is not None):
        return _authors_nhanes(theirs.require(root))
    if source == "auto" and ours.locate(root) is None:
        raise DataMissingError(f"{theirs.missing(root)} Or: {ours.missing(root)}")
    path = ours.require(root) / ours.files[0]
    names, rows = _read_numbers(_gunzip(path).decode(), path)
    if names[:2] != ("seqn", "y_survived15"):
        raise StorageError(f"{path} begins with the columns {names[:2]}, expected seqn, y_survived15.")
    return TensorData(rows[:, 2:].clone(), rows[:, 1].clone(), ours.name, names[2:])


#: Git's name for the authors' feature file.
AUTHORS_BLOB = "5dd8543ad05a7b0d39173bc1080b6e6f6d76efa3"


def _authors_nhanes(folder: Path) -> TensorData:
    path = folder / "X_sparsity.csv"
    content = path.read_bytes()
    if (found := git_blob_id(content)) != AUTHORS_BLOB:
        raise StorageError(f"{path} has git blob id {found}, the authors' file has {AUTHORS_BLOB}; download it again.")
    names, rows = _read_numbers(content.decode(), path)
    labels = np.load(folder / "y_sparsity.npy", allow_pickle=False)
    # The first column is the row's index.
    return TensorData(rows[:, 1:], torch.from_numpy(labels).double(), "NHANES I", names[1:])


def git_blob_id(content: bytes) -> str:
    """SHA-1 of "blob <size>\\\\0" and the content.

    >>> git_blob_id(b"hello\\n")
    'ce013625030ba8dba906f756967f9e9ca394464a'
    """
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _read_numbers(text: str, path: Path) -> tuple[tuple[str, ...], Tensor]:
    """The header and the numbers of a CSV text, NaN for an empty cell."""
    words = {"": np.nan, "True": 1.0, "False": 0.0}
    reader = csv.reader(io.StringIO(text))
    header = tuple(next(reader))
    try:
        rows = [[words[cell] if cell in words else float(cell) for cell in row] for row in reader]
        return header, torch.from_numpy(np.array(rows, dtype=np.float64).reshape(-1, len(header)))
    except ValueError as error:
        raise StorageError(f"{path}, line {reader.line_num}: {str(error).rstrip('.')}.") from error


def _gunzip(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError) as error:
        raise StorageError(f"{path} is damaged: {str(error).rstrip('.')}.") from error


def mnist(split: str = "train", root: Root = None) -> TensorData:
    """Handwritten digits: inputs [n, 1, 28, 28] in [0, 1]; 60,000 for "train", 10,000 for "test"."""
    return _read_split(SOURCES["mnist"], split, root, tuple("0123456789"))


def fashion_mnist(split: str = "train", root: Root = None) -> TensorData:
    """Pieces of clothing: inputs [n, 1, 28, 28] in [0, 1]; 60,000 for "train", 10,000 for "test"."""
    names = "T-shirt/top, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag, ankle boot"
    return _read_split(SOURCES["fashion_mnist"], split, root, tuple(names.split(", ")))


def _read_split(source: DataSource, split: str, root: Root, names: tuple[str, ...]) -> TensorData:
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
    content = _gunzip(path)
    if content[:3] != b"\0\0\x08":  # 8: unsigned bytes
        raise StorageError(f"{path} is not an idx file of bytes: it begins with {content[:4].hex()}.")
    start = 4 + 4 * content[3]
    shape = struct.unpack_from(f">{content[3]}I", content, 4) if len(content) >= start else ()
    if not shape or len(content) - start != int(np.prod(shape)):
        raise StorageError(f"{path} is damaged: {len(content) - start} values for the shape {shape}.")
    return torch.from_numpy(np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape).copy())


CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def cifar10(split: str = "train", root: Root = None) -> TensorData:
    """CIFAR-10 in memory, inputs [n, 3, 32, 32] in [0, 1], from folders by class or the binary batches."""
    check_choice("split", split, ("train", "test"))
    name, folders, binary = f"CIFAR-10 {split}", SOURCES["cifar10"], SOURCES["cifar10 (binary)"]
    if (folder := folders.locate(root)) is not None:
        return image_folder(folder / split, classes=CIFAR10_NAMES, name=name).load()
    folder = binary.locate(root)
    if folder is None:
        raise DataMissingError(f"{folders.missing(root)} Or: {binary.missing(root)}")
    parts = []
    for file in _BATCHES if split == "train" else ("test_batch.bin",):
        # Records of one byte for the class and 3,072 for the image, channel after channel.
        content = np.fromfile(folder / file, dtype=np.uint8)
        if len(content) % 3073 or not len(content):
            raise StorageError(f"{folder / file} is damaged: {len(content)} bytes are not a multiple of 3073.")
        parts.append(content.reshape(-1, 3073))
    records = torch.from_numpy(np.concatenate(parts))
    images = records[:, 1:].reshape(-1, 3, 32, 32).float().div_(255)
    return TensorData(images, records[:, 0].long(), name, CIFAR10_NAMES)
