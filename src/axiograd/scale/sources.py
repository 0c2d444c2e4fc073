"""Where samples come from, by the number of their row: any worker reads any rows, and always the same ones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from axiograd._extras import optional
from axiograd._io import digest, file_sha256
from axiograd.datasets.images import damage, decode, pillow
from axiograd.datasets.tensors import TensorData
from axiograd.errors import AxiogradError, ConfigurationError, DataMissingError, InputError, StorageError

#: Names that a column of images or features has by default, and of labels.
INPUTS, LABELS = ("image", "img", "x", "features", "pixel_values"), ("label", "labels", "class", "y", "fine_label")
#: Rows that are read to tell a list from another one, spread over all of it.
_SPREAD = 64
_COLOUR, _GREY = 3, 2


# One sample


@dataclass(frozen=True)
class Unreadable:
    """A sample that cannot be read, and why."""

    reason: str


def readable(read: Callable[..., Any], *arguments: Any) -> Any:
    """What a function reads, or why it cannot: that is its row's error, and not the end of a run."""
    try:
        return read(*arguments)
    except damage() + (TypeError, AxiogradError) as error:  # noqa: RUF005  # mypy does not read the other form
        return Unreadable(f"{type(error).__name__}: {error}")


def as_sample(value: Any, preprocess: Callable[..., Tensor] | None) -> Tensor | Unreadable:
    """One cell as a tensor: pixels, encoded images and paths through `preprocess`, other numbers as they are.

    >>> as_sample(np.array([1, 2]), None)
    tensor([1, 2])
    >>> as_sample(b"not an image", lambda image: torch.ones(3, 2, 2)).reason
    "DamagedImageError: the image cannot be decoded: cannot identify image file ..."
    """
    if isinstance(value, Mapping):  # Hugging Face's images
        value = value.get("bytes") or value.get("path")
    if value is None:
        return Unreadable("there is no value")
    if isinstance(value, Tensor | Unreadable):
        return value
    if isinstance(value, bytes | str | Path) and preprocess is None:
        raise ConfigurationError(
            "the column has encoded images or paths: say how they become the model's inputs, "
            "preprocess=axiograd.datasets.IMAGENET."
        )
    found: Tensor | Unreadable = readable(_tensor, value, preprocess)
    return found


def _tensor(value: Any, preprocess: Callable[..., Tensor] | None) -> Tensor:
    if preprocess is not None and isinstance(value, bytes | str | Path):
        return preprocess(decode(value if isinstance(value, bytes) else Path(value)))
    array = np.asarray(value)
    if array.dtype == object:  # lists of lists, as Ray gives them
        array = np.stack([np.asarray(one, dtype=np.float32) for one in value])
    if array.dtype.kind not in "biuf":
        raise InputError(f"expected an image or numbers, got {array.dtype}.")
    if preprocess is not None and array.dtype == np.uint8 and array.ndim in {_GREY, _COLOUR}:
        squeezed = array[..., 0] if array.ndim == _COLOUR and array.shape[2] == 1 else array
        return preprocess(pillow().fromarray(squeezed).convert("RGB"))
    return torch.from_numpy(np.array(array))  # a copy: files that are mapped into memory are read-only


def as_class(value: Any, column: str = "label") -> int | None:
    """A label as a number; None for one that is missing.

    >>> as_class(2.0), as_class(float("nan"))
    (2, None)
    """
    if value is None or value != value:  # noqa: PLR0124  # NaN, as pandas has it for what is missing
        return None
    try:
        if int(value) == value:
            return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(
        f"the label {str(value)!r} in the column {column!r} is not a class's number: say another column, label=."
    )


# Many samples


@dataclass(frozen=True)
class Rows:
    """Some rows: their names, their inputs as `as_sample` takes them, and their classes (None where there are none)."""

    names: list[str]
    inputs: list[Any]
    labels: list[int | None]
    #: True inside, for `InMasks`.
    masks: list[Tensor | None] | None = None


class Source(Protocol):
    """Rows by number; `read` gives the same ones each time, in every process."""

    @property
    def name(self) -> str:
        """What it is called in the tables that are made from it."""

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> Rows:
        """The rows from `start` to `stop`."""

    def settings(self) -> dict[str, Any]:
        """A fingerprint of these rows as JSON: a run that is resumed must have the same."""


@dataclass
class Listed:
    """Rows that a function reads one by one; what it raises for one of them becomes that row's error.

    >>> source = Listed("two", ["a", "b"], [Tensor([1.0]), Tensor([2.0])].__getitem__)
    >>> source.read(1, 2).names, source.read(1, 2).inputs
    (['b'], [tensor([2.])])
    """

    name: str
    names: Sequence[str]
    get: Callable[[int], Any]
    labels: Sequence[Any] | None = None
    #: What the columns of a table are called.
    features: Sequence[str] = ()
    #: Of images, by their place: true inside, or None where there is no mask.
    masks: Callable[[int], Tensor | None] | None = None
    #: Of what is read, a digest or a date: a run is resumed only where it is the same, and 64 rows hold the same.
    version: str = ""

    def __len__(self) -> int:
        return len(self.names)

    def read(self, start: int, stop: int) -> Rows:
        """The rows from `start` to `stop`."""
        places = range(start, min(stop, len(self)))
        read = [readable(self._sample, i) for i in places]
        pairs = [(one, None) if isinstance(one, Unreadable) else one for one in read]
        return Rows(
            [self.names[i] for i in places],
            [sample for sample, _ in pairs],
            [None if self.labels is None else as_class(self.labels[i]) for i in places],
            None if self.masks is None else [mask for _, mask in pairs],
        )

    def _sample(self, place: int) -> tuple[Any, Tensor | None]:
        return self.get(place), None if self.masks is None else self.masks(place)

    def settings(self) -> dict[str, Any]:
        """Names, labels, version, and what some rows hold."""
        places = np.linspace(0, len(self) - 1, min(len(self), _SPREAD)).astype(int).tolist()
        read = [self.read(place, place + 1) for place in places]
        return {
            "source": self.name,
            "names": digest("\0".join(self.names)),
            "labels": digest(repr(self.labels)),
            "version": self.version,
            "inputs": _digest_of([rows.inputs[0] for rows in read]),
            "masks": _digest_of([rows.masks[0] for rows in read if rows.masks]),
        }


def _digest_of(cells: Sequence[Any]) -> str:
    return digest(*(cell if isinstance(cell, Tensor) else repr(cell) for cell in cells))


def tensors(data: TensorData) -> Listed:
    """A data set in memory."""
    names = [f"{data.name} {i}" for i in range(len(data))]
    version = digest(data.inputs, data.targets)
    return Listed(data.name, names, lambda i: data.inputs[i], data.targets.tolist(), version=version)


class NumpyFile(Listed):
    """The rows of a ``.npy`` file, read where they are; labels from a second one."""

    def __init__(self, path: str | Path, labels: str | Path | None = None) -> None:
        self.path = Path(path).absolute()  # workers may be in another folder
        n, classes = len(_mapped(self.path)), None
        if labels is not None:
            classes = _mapped(Path(labels)).tolist()
            if len(classes) != n:
                raise ConfigurationError(f"{self.path} has {n} rows, {labels} has {len(classes)}.")
        names = [f"{self.path.name} {i}" for i in range(n)]
        super().__init__(self.path.name, names, self._row, classes)

    def _row(self, row: int) -> Any:
        return _mapped(self.path)[row]

    def settings(self) -> dict[str, Any]:
        """Labels, and the file's SHA-256: reading it once is little beside attributing every row."""
        return {"source": self.name, "labels": digest(repr(self.labels)), "sha256": file_sha256(self.path)}


def _mapped(path: Path) -> Any:
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise DataMissingError(f"there is no file {path}.") from error
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} cannot be read: {error}.") from error
    if not isinstance(found, np.ndarray) or found.ndim == 0:
        raise ConfigurationError(f"{path}: expected one array with a row per sample.")
    return found


class ParquetFiles(Listed):
    """Rows of a Parquet file, or of all those in a folder: images as Hugging Face stores them, or lists of numbers."""

    def __init__(self, path: str | Path, *, column: str | None = None, label: str | None = None) -> None:
        self.path = Path(path).absolute()  # workers may be in another folder
        self.data = open_parquet(self.path)
        names, kinds = self.data.schema.names, optional("pyarrow", "scale", "Parquet").types
        for option, given in (("--column", column), ("--label", label)):
            if given not in (None, *names):
                raise ConfigurationError(f"{option} {given}: {self.path} has {', '.join(names)}.")
        self.column = column or next((name for name in INPUTS if name in names), None)
        if self.column is None:
            raise ConfigurationError(
                f"{self.path} has the columns {', '.join(names)}: say which one holds the inputs (column)."
            )
        # Words in a column that nobody named are no labels.
        found = [name for name in LABELS if name in names and kinds.is_primitive(self.data.schema.field(name).type)]
        label = label or next(iter(found), None)
        with reading_parquet(self.path):
            labels = None if label is None else self.data.to_table(columns=[label])[label].to_pylist()
            # The least that can be read.
            self.groups = [group for file in self.data.get_fragments() for group in file.split_by_row_group()]
        self.ends = np.cumsum([group.row_groups[0].num_rows for group in self.groups], dtype=int).tolist()
        self._held: tuple[int, Any] = (-1, None)
        rows = [f"{self.path.name} {i}" for i in range(self.ends[-1] if self.ends else 0)]
        super().__init__(self.path.name, rows, self._cell, labels)

    def _cell(self, row: int) -> Any:
        number = bisect_right(self.ends, row)
        if self._held[0] != number:
            with reading_parquet(self.path):
                # With the schema, so that a file without the column has nulls there.
                table = self.groups[number].to_table(columns=[self.column], schema=self.data.schema)
            self._held = (number, table[self.column])
        return self._held[1][row - (self.ends[number - 1] if number else 0)].as_py()

    def settings(self) -> dict[str, Any]:
        """Names, labels, and the files' footers: sizes, and the smallest and largest values of each column chunk."""
        footers = [repr(file.metadata.to_dict()) for file in self.data.get_fragments()]
        labels = digest(repr(self.labels))
        return {"source": self.name, "column": self.column, "labels": labels, "footers": digest(*footers)}


@contextmanager
def reading_parquet(path: Path) -> Iterator[None]:
    """What pyarrow raises, as a `StorageError` that names the file."""
    pa = optional("pyarrow", "scale", "Parquet")
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"{path} is damaged, or is not a Parquet file: {error}.") from error


def open_parquet(path: Path) -> Any:
    """A pyarrow data set: one file, or all those in a folder and below it, in the order of their names."""
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path] if path.is_file() else []
    if not files:
        raise DataMissingError(f"there are no Parquet files in {path}, or it does not exist.")
    with reading_parquet(path):
        return optional("pyarrow.dataset", "scale", "Parquet").dataset([str(file) for file in files], format="parquet")
