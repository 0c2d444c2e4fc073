"""Where samples come from, by the number of their row: any worker reads any rows, and always the same ones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

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


@dataclass
class Listed:
    """Rows that a function reads one by one; what it raises for one of them becomes that row's error.

    >>> source = Listed("two", ["a", "b"], [Tensor([1.0]), Tensor([2.0])].__getitem__)
    >>> source.read([1])
    ([tensor([2.])], [None])
    """

    name: str
    names: Sequence[str]
    get: Callable[[int], Any]
    labels: Sequence[Any] | None = None
    #: What the columns of a table are called.
    features: Sequence[str] = ()
    #: Of images, by their place: true inside, or None where there is no mask.
    masks: Callable[[int], Tensor | None] | None = None
    #: Of what is read, a digest or a date, or what computes it: a run is resumed only where it is the same.
    version: str | Callable[[], str] = ""

    def __len__(self) -> int:
        return len(self.names)

    def read(self, places: Iterable[int]) -> tuple[list[Any], list[Tensor | None]]:
        """What `as_sample` takes for each of these rows, and its mask; an exception for a row that cannot be read."""

        def row(place: int) -> tuple[Any, Tensor | None]:
            return self.get(place), None if self.masks is None else self.masks(place)

        found = [_attempt(row, place) for place in places]
        pairs = [(one, None) if isinstance(one, Exception) else one for one in found]
        return [sample for sample, _ in pairs], [mask for _, mask in pairs]

    def settings(self) -> dict[str, Any]:
        """As JSON, what tells these rows from others: names, labels, version, and what 64 of them hold."""
        inputs, masks = self.read(np.linspace(0, len(self) - 1, min(len(self), _SPREAD)).astype(int).tolist())
        return {
            "source": self.name,
            "names": digest("\0".join(self.names)),
            "labels": digest(repr(self.labels)),
            "version": self.version if isinstance(self.version, str) else self.version(),
            "inputs": digest(*(one if isinstance(one, Tensor) else repr(one) for one in (*inputs, *masks))),
        }


def _attempt(read: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns, or what it raises: that is its row's error, and not the end of a run."""
    try:
        return read(*arguments)
    except damage() + (TypeError, AxiogradError) as error:  # noqa: RUF005  # mypy does not read the other form
        return error


def as_sample(value: Any, preprocess: Callable[..., Tensor] | None) -> Tensor | Exception:
    """One cell as a tensor: pixels, encoded images and paths through `preprocess`, other numbers as they are.

    >>> as_sample(np.array([1, 2]), None)
    tensor([1, 2])
    >>> as_sample(b"not an image", lambda image: torch.ones(3, 2, 2))
    DamagedImageError(...)
    """
    if isinstance(value, Mapping):  # Hugging Face's images
        value = value.get("bytes") or value.get("path")
    if isinstance(value, Tensor | Exception):
        return value
    if isinstance(value, bytes | str | Path) and preprocess is None:
        raise ConfigurationError(
            "the column has encoded images or paths: say how they become the model's inputs, "
            "preprocess=axiograd.datasets.IMAGENET."
        )
    found: Tensor | Exception = _attempt(_tensor, value, preprocess)
    return found


def _tensor(value: Any, preprocess: Callable[..., Tensor] | None) -> Tensor:
    if value is None:
        raise InputError("there is no value.")
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


def tensors(data: TensorData) -> Listed:
    """A data set in memory."""
    names = [f"{data.name} {i}" for i in range(len(data))]
    version = partial(digest, data.inputs, data.targets)
    return Listed(data.name, names, data.inputs.__getitem__, data.targets.tolist(), version=version)


# Files; their paths are absolute, as workers may be in another folder


def numpy_file(path: str | Path, labels: str | Path | None = None) -> Listed:
    """The rows of a ``.npy`` file, read where they are; labels from a second one."""
    file = Path(path).absolute()
    names = [f"{file.name} {i}" for i in range(len(_mapped(file)))]
    classes = None if labels is None else _mapped(Path(labels)).tolist()
    if classes is not None and len(classes) != len(names):
        raise ConfigurationError(f"{path} has {len(names)} rows, {labels} has {len(classes)}.")
    return Listed(file.name, names, partial(_numpy_row, file), classes, version=partial(file_sha256, file))


def _numpy_row(path: Path, row: int) -> Any:
    return _mapped(path)[row]


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


def parquet_files(path: str | Path, *, column: str | None = None, label: str | None = None) -> Listed:
    """Rows of a Parquet file, or of all those in a folder: images as Hugging Face stores them, or lists of numbers."""
    data = open_parquet(Path(path).absolute())
    schema, types = data.schema, optional("pyarrow", "scale", "Parquet").types
    for option, given in (("--column", column), ("--label", label)):
        if given not in (None, *schema.names):
            raise ConfigurationError(f"{option} {given}: {path} has {', '.join(schema.names)}.")
    column = column or next((name for name in INPUTS if name in schema.names), None)
    if column is None:
        raise ConfigurationError(
            f"{path} has the columns {', '.join(schema.names)}: say which one holds the inputs (column)."
        )
    # Words in a column that nobody named are no labels.
    numbers = [name for name in LABELS if name in schema.names and types.is_primitive(schema.field(name).type)]
    label = label or next(iter(numbers), None)
    with reading_parquet(path):
        labels = None if label is None else data.to_table(columns=[label])[label].to_pylist()
        names = [f"{Path(path).name} {i}" for i in range(data.count_rows())]
        # The footers have sizes, and the smallest and largest values of each column chunk.
        version = digest(*(repr(file.metadata.to_dict()) for file in data.get_fragments()))
        return Listed(Path(path).name, names, _ParquetColumn(data, column), labels, version=version)


@dataclass
class _ParquetColumn:
    """Cells by row; the row group that was read last, the least that can be read, is held."""

    data: Any
    column: str
    held: tuple[int, Any] = field(default=(-1, None), repr=False)

    def __post_init__(self) -> None:
        self.groups = [group for file in self.data.get_fragments() for group in file.split_by_row_group()]
        self.ends = np.cumsum([group.row_groups[0].num_rows for group in self.groups], dtype=int).tolist()

    def __call__(self, row: int) -> Any:
        number = bisect_right(self.ends, row)
        if self.held[0] != number:
            # With the schema, so that a file without the column has nulls there.
            table = self.groups[number].to_table(columns=[self.column], schema=self.data.schema)
            self.held = number, table[self.column]
        # Counted from the group's end.
        return self.held[1][row - self.ends[number]].as_py()


@contextmanager
def reading_parquet(path: str | Path) -> Iterator[None]:
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
