"""Where samples come from, by the number of their row: a worker reads the rows that it is told, in any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from axiograd._io import digest
from axiograd.datasets.tensors import TensorData
from axiograd.errors import ConfigurationError, DataMissingError, InputError, StorageError
from axiograd.scale.reading import Broken, as_class, as_sample, unreadable
from axiograd.scale.table import pyarrow

#: Names that a column of images or features has by default, and of labels.
INPUTS, LABELS = ("image", "img", "x", "features", "pixel_values"), ("label", "labels", "class", "y", "fine_label")


@dataclass(frozen=True)
class SourceRows:
    """Some rows: their names, their inputs or why there are none, and their classes (None where there are none)."""

    names: list[str]
    inputs: list[Tensor | Broken]
    labels: list[int | None]
    #: True inside, for `InMasks`.
    masks: list[Tensor | None] | None = None


class Source(Protocol):
    """Rows by number; `read` gives the same ones each time, in every process."""

    @property
    def name(self) -> str:
        """What it is called in the tables that are made from it."""

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> SourceRows:
        """The rows from `start` to `stop`."""

    def settings(self) -> dict[str, Any]:
        """What tells these rows from others without reading them all, as JSON."""


@dataclass(frozen=True)
class Listed:
    """SourceRows that a function reads one by one; what it raises for one of them becomes that row's error.

    >>> source = Listed("two", ["a", "b"], [Tensor([1.0]), Tensor([2.0])].__getitem__)
    >>> source.read(1, 2).names, source.read(1, 2).inputs
    (['b'], [tensor([2.])])
    """

    name: str
    names: Sequence[str]
    get: Callable[[int], Tensor]
    labels: Sequence[int] | None = None
    #: What the columns of a table are called.
    features: Sequence[str] = ()
    #: Of images, by their place: true inside, or None where there is no mask.
    masks: Callable[[int], Tensor | None] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def read(self, start: int, stop: int) -> SourceRows:
        """The rows from `start` to `stop`."""
        places = range(start, min(stop, len(self)))
        labels = [None if self.labels is None else int(self.labels[i]) for i in places]
        read = [self._one(i) for i in places]
        return SourceRows(
            [self.names[i] for i in places],
            [sample for sample, _ in read],
            labels,
            None if self.masks is None else [mask for _, mask in read],
        )

    def _one(self, place: int) -> tuple[Tensor | Broken, Tensor | None]:
        try:
            return self.get(place), None if self.masks is None else self.masks(place)
        except unreadable() as error:
            return Broken(f"{type(error).__name__}: {error}"), None

    def settings(self) -> dict[str, Any]:
        labels = None if self.labels is None else digest(repr(list(self.labels)))
        return {"source": self.name, "rows": len(self), "names": digest("\0".join(self.names)), "labels": labels}


def tensors(data: TensorData) -> Listed:
    """A data set in memory."""
    names = [f"{data.name} {i}" for i in range(len(data))]
    return Listed(data.name, names, lambda i: data.inputs[i], data.targets.tolist())


@dataclass(frozen=True)
class NumpyFile:
    """The rows of a ``.npy`` file, read where they are; labels from a second one."""

    path: Path
    preprocess: Callable[..., Tensor] | None = None
    labels: Path | None = None

    def __post_init__(self) -> None:
        # Workers may be in another folder.
        object.__setattr__(self, "path", Path(self.path).absolute())
        object.__setattr__(self, "labels", None if self.labels is None else Path(self.labels).absolute())
        n = len(self)
        if self.labels is not None and len(_mapped(self.labels)) != n:
            raise ConfigurationError(f"{self.path} has {n} rows, {self.labels} has {len(_mapped(self.labels))}.")

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def __len__(self) -> int:
        return len(_mapped(self.path))

    def read(self, start: int, stop: int) -> SourceRows:
        """The rows from `start` to `stop`."""
        rows = np.array(_mapped(self.path)[start:stop])
        labels = None if self.labels is None else _mapped(self.labels)[start:stop].tolist()
        return SourceRows(
            [f"{self.name} {start + i}" for i in range(len(rows))],
            [as_sample(row, self.preprocess) for row in rows],
            [None] * len(rows) if labels is None else [as_class(one, str(self.labels)) for one in labels],
        )

    def settings(self) -> dict[str, Any]:
        return {"source": self.name, "rows": len(self), **_stamp([self.path])}


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


class ParquetFiles:
    """Rows of Parquet files: images as Hugging Face and others store them, or lists of numbers."""

    def __init__(
        self,
        path: str | Path,
        *,
        column: str | None = None,
        label: str | None = None,
        preprocess: Callable[..., Tensor] | None = None,
    ) -> None:
        self.path, self.preprocess = Path(path).absolute(), preprocess  # workers may be in another folder
        self.files = sorted(self.path.rglob("*.parquet")) if self.path.is_dir() else [self.path]
        missing = [file for file in self.files if not file.is_file()]
        if missing or not self.files:
            raise DataMissingError(f"there is no Parquet file {missing[0] if missing else self.path}.")
        #: The first row of each row group, and where it is: a group is the least that can be read.
        self.groups: list[tuple[int, int, int, int]] = []
        start = 0
        self.schema = opened(self.files[0]).schema_arrow
        self.column = self._found("--column", column, INPUTS)
        if self.column is None:
            raise ConfigurationError(
                f"{self.path} has the columns {', '.join(self.schema.names)}: say which one holds the inputs (column)."
            )
        self.label = self._labels(label)
        self._held: tuple[int, Any] | None = None
        for number, file in enumerate(self.files):
            each = opened(file)
            if absent := [name for name in self._columns if name not in each.schema_arrow.names]:
                raise ConfigurationError(f"{file} has no column {absent[0]!r}, and {self.files[0]} has.")
            metadata = each.metadata
            for group in range(metadata.num_row_groups):
                rows = metadata.row_group(group).num_rows
                self.groups.append((start, start + rows, number, group))
                start += rows
        self.rows = start

    @property
    def _columns(self) -> list[str]:
        return [name for name in (self.column, self.label) if name is not None]

    def _labels(self, given: str | None) -> str | None:
        """The column of labels; words are refused where they were asked for, and else left alone."""
        found = self._found("--label", given, LABELS)
        kinds = pyarrow().types
        if found is None or any(
            of(self.schema.field(found).type) for of in (kinds.is_integer, kinds.is_floating, kinds.is_boolean)
        ):
            return found
        if given is None:
            return None
        raise ConfigurationError(
            f"--label {found}: the column holds {self.schema.field(found).type}, and not the numbers of classes."
        )

    def _found(self, option: str, given: str | None, usual: Sequence[str]) -> str | None:
        if given is not None and given not in self.schema.names:
            raise ConfigurationError(f"{option} {given}: {self.path} has {', '.join(self.schema.names)}.")
        return given or next((name for name in usual if name in self.schema.names), None)

    @property
    def name(self) -> str:
        """The file's or folder's name."""
        return self.path.name

    def __len__(self) -> int:
        return self.rows

    def read(self, start: int, stop: int) -> SourceRows:
        """The rows from `start` to `stop`."""
        names: list[str] = []
        inputs: list[Tensor | Broken] = []
        labels: list[int | None] = []
        for first, last, number, group in self.groups:
            low, high = max(start, first), min(stop, last)
            if low >= high:
                continue
            table = self._group(first, number, group).slice(low - first, high - low)
            values = table[self.column].to_pylist()
            names += [f"{self.name} {low + i}" for i in range(len(values))]
            inputs += [as_sample(value, self.preprocess) for value in values]
            given = [None] * len(values) if self.label is None else table[self.label].to_pylist()
            labels += [as_class(one, str(self.label)) for one in given]
        return SourceRows(names, inputs, labels)

    def _group(self, first: int, number: int, group: int) -> Any:
        """A row group; the last one is held, because the next batch is mostly from it, too."""
        if self._held is None or self._held[0] != first:
            pa = pyarrow()
            try:
                found = opened(self.files[number]).read_row_group(group, columns=self._columns)
            except (OSError, pa.ArrowException) as error:
                raise StorageError(f"{self.files[number]}, row group {group}, cannot be read: {error}.") from error
            self._held = (first, found)
        return self._held[1]

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_held": None}

    def settings(self) -> dict[str, Any]:
        return {"source": self.name, "rows": len(self), "column": self.column, **_stamp(self.files)}


def opened(path: Path) -> Any:
    """A Parquet file, or why it cannot be read."""
    pa = pyarrow()
    try:
        return pa.parquet.ParquetFile(path)
    except FileNotFoundError as error:
        raise DataMissingError(f"there is no file {path}.") from error
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"{path} is damaged, or is not a Parquet file: {error}.") from error


def _stamp(paths: Sequence[Path]) -> dict[str, Any]:
    """Sizes and names: a file of a million rows is not read again to know it."""
    return {"files": digest(*(f"{path.name} {path.stat().st_size}\n" for path in paths))}


def check_rows(source: Source) -> int:
    """How many rows there are; none is an error."""
    n = len(source)
    if n == 0:
        raise InputError(f"{source.name} has no rows: there is nothing to attribute.")
    return n
