"""What the command explains or evaluates: images, folders of them, rows of a table, or one of our data sets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

import axiograd.datasets
from axiograd.cli.tables import FeatureTable, TableOptions, prepare, read_table
from axiograd.datasets import DamagedImageError, ImageFiles, Schema, TensorData, catalogue
from axiograd.datasets.folders import SUFFIXES, class_folders, image_files
from axiograd.datasets.images import decode
from axiograd.datasets.tables import is_table
from axiograd.errors import ConfigurationError, DataMissingError, InputError
from axiograd.loading.prepared import Prepared
from axiograd.loading.specs import guess_shape


@dataclass(frozen=True)
class Samples:
    """Inputs that are read when they are needed, with names, and labels, boxes and class names where they exist."""

    source: str
    names: tuple[str, ...]
    read: Callable[[int], Tensor]
    prepared: str
    zero: str
    labels: tuple[int, ...] | None = None
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    boxes: Tensor | None = None
    pixels: Prepared | None = None
    #: How a table was prepared, and its rows as people read them.
    table: FeatureTable | None = None
    rows: tuple[int, ...] = ()
    #: Of images: their files, the folder that holds them all, and the masks of `--masks`, by place.
    files: tuple[Path, ...] = ()
    root: Path | None = None
    masks: Callable[[int], Tensor | None] | None = None
    #: Files that could not be decoded and were left out.
    skipped: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.names)

    def choose(self, indices: Sequence[int]) -> Samples:
        """Some of the samples, in this order."""
        rows = self.rows or range(len(self.names))
        return replace(
            self,
            names=tuple(self.names[i] for i in indices),
            rows=tuple(rows[i] for i in indices),
            labels=None if self.labels is None else tuple(self.labels[i] for i in indices),
            boxes=None if self.boxes is None else self.boxes[list(indices)],
        )

    def row(self, place: int) -> int:
        """Where a sample stands in its table."""
        return self.rows[place] if self.rows else place

    def mask(self, place: int) -> Tensor | None:
        """Where a sample's object is, if that is known: true inside."""
        return None if self.masks is None else self.masks(self.row(place))

    def batches(
        self, size: int, like: Tensor, *, skip_damaged: bool = False, start: int = 0
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Places and inputs of samples that have the same shape and stand together, on the model's device and dtype."""
        places: list[int] = []
        inputs: list[Tensor] = []
        for i in range(start, len(self)):
            try:
                x = self.read(self.row(i))
            except DamagedImageError:
                if not skip_damaged:
                    raise
                self.skipped.append(self.names[i])
                continue
            if inputs and (len(inputs) == size or x.shape != inputs[0].shape):
                yield places, torch.stack(inputs).to(like)
                places, inputs = [], []
            places.append(i)
            inputs.append(x)
        if inputs:
            yield places, torch.stack(inputs).to(like)


def read_samples(given: Sequence[str], pixels: Prepared, tables: TableOptions, *, split: str | None = None) -> Samples:
    """Read what was named: a data set, a table, or images and folders."""
    known = {entry.loader.split(" ")[0] for entry in catalogue()}
    if len(given) == 1 and given[0] in known and not Path(given[0]).exists():
        return _data_set(given[0], pixels, tables, split)
    if any(is_table(name) for name in given):
        if len(given) > 1:
            raise ConfigurationError("one table at a time: give a single file, or images.")
        table = read_table(Path(given[0]), tables)
        n = len(table.inputs)
        return _rows(f"{given[0]}, {n:,} {'row' if n == 1 else 'rows'}", [f"row {i}" for i in range(n)], table)
    return _images([Path(name) for name in given], pixels)


def _rows(source: str, names: Sequence[str], table: FeatureTable) -> Samples:
    return Samples(
        source,
        tuple(names),
        table.inputs.__getitem__,
        table.prepared,
        table.schema.zero,
        table.labels,
        table.classes,
        features=table.schema.encoded_names,
        table=table,
    )


def check_width(samples: Samples, model: nn.Module) -> None:
    """A table has as many features as the model takes, where the first layer tells."""
    if not samples.features:
        return
    try:
        shape = guess_shape(model)
    except ConfigurationError:
        return
    if len(shape) == 1 and shape[0] != len(samples.features):
        raise ConfigurationError(
            f"{samples.source} has {len(samples.features)} features, from {samples.features[0]!r} to "
            f"{samples.features[-1]!r}, and the model takes {shape[0]}: leave columns out by --drop or --label, or "
            f"build the model for them, as --set in_channels={len(samples.features)}."
        )


def _images(paths: Sequence[Path], pixels: Prepared) -> Samples:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            found = image_files(path)
            if not found:
                raise DataMissingError(f"{path} holds no images ({', '.join(sorted(SUFFIXES))}).")
            files += found
        elif not path.exists():
            raise DataMissingError(f"there is no file, folder or data set {str(path)!r}; see `axiograd datasets`.")
        else:
            files.append(path)
    labels: tuple[int, ...] | None = None
    classes: tuple[str, ...] = ()
    if len(paths) == 1 and paths[0].is_dir() and all(file.parent != paths[0] for file in files):
        places = [file.relative_to(paths[0]).parts[0] for file in files]
        classes = tuple(class_folders(paths[0]))
        labels = tuple(classes.index(place) for place in places)
    root = paths[0] if len(paths) == 1 and paths[0].is_dir() else None
    names = tuple(str(file.relative_to(root)) if root else file.name for file in files)
    source = str(paths[0]) if len(paths) == 1 else f"{len(files)} images"
    here = tuple(file.absolute() for file in files)  # who reads them may be in another folder
    return Samples(
        source,
        names,
        lambda i: _prepared(here[i], pixels),
        str(pixels),
        pixels.zero,
        labels,
        classes,
        pixels=pixels,
        files=here,
        root=None if root is None else root.absolute(),
    )


def _prepared(path: Path, pixels: Prepared) -> Tensor:
    """An image as the model takes it; one that cannot be made so is named, and can be left out."""
    image = decode(path)
    try:
        return pixels(image)
    except InputError as error:
        raise DamagedImageError(f"{path}: {error}") from error


def _data_set(name: str, pixels: Prepared, tables: TableOptions, split: str | None) -> Samples:
    loader = getattr(axiograd.datasets, name)
    parameters = inspect.signature(loader).parameters
    options: dict[str, Any] = {}
    if "split" in parameters:
        usual = "val" if name in {"imagenet", "tiny_imagenet"} else "test"
        options["split"] = split or usual
    elif split is not None:
        raise ConfigurationError(f"--split {split}: {name} has no splits.")
    if "transform" in parameters:
        options["transform"] = pixels
    data = loader(**options)
    if isinstance(data, ImageFiles):
        names = tuple(f"{Path(path).parent.name}/{Path(path).name}" for path in data.paths)
        labels = tuple(data.targets.tolist())
        return Samples(
            data.name,
            names,
            lambda i: data[i][0],
            str(pixels),
            pixels.zero,
            labels,
            data.classes,
            boxes=data.boxes,
            pixels=pixels,
            files=tuple(Path(path) for path in data.paths),
        )
    return _tensors(data, pixels, tables)


def _tensors(data: TensorData, pixels: Prepared, tables: TableOptions) -> Samples:
    names = tuple(f"{data.name} {i}" for i in range(len(data)))
    labels = tuple(int(target) for target in data.targets)
    if data.inputs.dim() == 2:  # noqa: PLR2004  # [samples, features]
        rows = np.asarray(data.inputs, dtype=np.float64)
        content: Any = {name: rows[:, i] for i, name in enumerate(data.names)}
        if tables.statistics is None:
            # A data set is whole, whatever part of it is explained: its statistics are those of the training data.
            of_all = Schema.fit(content, missing=cast("Any", tables.missing), standardise=tables.standardise)
            tables = replace(tables, statistics=of_all, of=f"all of {data.name}")
        table = prepare(content, replace(tables, label=None), data.name)
        return _rows(data.name, names, replace(table, labels=labels, classes=()))
    return Samples(
        data.name,
        names,
        lambda i: pixels.transform.normalise(data.inputs[i]),
        str(replace(pixels, transform=replace(pixels.transform, resize=None, crop=None))),
        pixels.zero,
        labels,
        data.names,
        boxes=data.boxes,
        pixels=pixels,
    )
