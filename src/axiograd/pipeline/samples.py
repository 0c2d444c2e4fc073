"""What is explained: images, folders of them, rows of a table, files of arrays, or one of our data sets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import axiograd.datasets
from axiograd._names import choose_from
from axiograd._state import like_of
from axiograd.datasets import Column, DamagedImageError, ImageFiles, Schema, TensorData, catalogue
from axiograd.datasets.folders import SUFFIXES, FolderMasks, class_folders, image_files
from axiograd.datasets.images import damage, decode, pillow
from axiograd.datasets.tables import is_numeric, is_table, read_frame
from axiograd.errors import ConfigurationError, DataMissingError, InputError, StorageError
from axiograd.loading import Loaded
from axiograd.loading.prepared import Prepared
from axiograd.loading.shapes import guess_shape, image_shape, takes
from axiograd.pipeline.classes import ClassNames
from axiograd.scale import Listed, numpy_file, parquet_files
from axiograd.scale.sources import as_sample

_TURNED = (5, 6, 7, 8)  # orientations of EXIF that lie on their side
_ORIENTATION = 0x0112
_IMAGE = _RGB = 3


@dataclass(frozen=True)
class Samples:
    """Rows by number, how they become inputs, in words, and what is known about them."""

    source: Listed
    #: How inputs are prepared, and what the zero baseline is, in words.
    prepared: str
    zero: str
    classes: tuple[str, ...] = ()
    #: Of images.
    pixels: Prepared | None = None
    #: Of tables: how rows are prepared, and their cells as people read them.
    schema: Schema | None = None
    cells: Sequence[tuple[str, ...]] = ()

    def __len__(self) -> int:
        return len(self.source)

    def take(self, n: int | None, *, spread: bool = False) -> Samples:
        """The first n, or n that are spread over all: folders and data sets are sorted by class."""
        if n is None or n >= len(self):
            return self
        places = [i * len(self) // n for i in range(n)] if spread else list(range(n))
        whole, masks = self.source, self.source.masks
        chosen = Listed(
            whole.name,
            [whole.names[i] for i in places],
            lambda i: whole.get(places[i]),
            None if whole.labels is None else [whole.labels[i] for i in places],
            whole.features,
            None if masks is None else lambda i: masks(places[i]),
        )
        return replace(self, source=chosen, cells=[self.cells[i] for i in places] if self.cells else ())

    def class_names(self, loaded: Loaded, n_outputs: int) -> ClassNames:
        """What the model's outputs are called."""
        return ClassNames.of(loaded.classes, self.classes, n_outputs)

    def labels_of(self, loaded: Loaded, n_outputs: int) -> list[int] | None:
        """The model's class of every sample; None where there are no labels, or none that can be matched."""
        labels = self.source.labels
        if labels is None or any(label is None for label in labels):
            return None
        return self.class_names(loaded, n_outputs).match(labels, self.classes, n_outputs)

    def batches(
        self, size: int, like: Tensor, left_out: dict[str, str]
    ) -> Iterator[tuple[list[int], Tensor, list[Any]]]:
        """Places, inputs and masks of samples of one shape; why others cannot be read is noted in `left_out`."""
        for start in range(0, len(self), size):
            places = range(start, min(start + size, len(self)))
            inputs, masks = self.source.read(places)
            shapes: dict[torch.Size, dict[int, Tensor]] = {}
            for place, value in zip(places, inputs, strict=True):
                sample = as_sample(value, self.pixels)
                if isinstance(sample, Tensor):
                    shapes.setdefault(sample.shape, {})[place] = sample
                else:
                    left_out[self.source.names[place]] = f"{type(sample).__name__}: {sample}"
            for same in shapes.values():
                own = [masks[place - start] for place in same]
                yield list(same), torch.stack(list(same.values())).to(like), own


def read_samples(
    loaded: Loaded,
    given: Sequence[str],
    *,
    preprocess: str | None = None,
    masks: Path | None = None,
    column: str | None = None,
) -> Samples:
    """Read what was named: a data set, a table, Parquet or .npy files, or images and folders."""
    path = Path(given[0])
    known = {entry.loader.split(" ")[0] for entry in catalogue()}
    if any(is_table(name) or Path(name).suffix == ".npy" for name in given) and len(given) > 1:
        raise ConfigurationError(f"one table at a time: give {given[0]} alone, or images.")
    parquet = (path.is_dir() and any(path.rglob("*.parquet"))) or path.suffix == ".parquet"
    if path.suffix == ".npy" or (parquet and loaded.schema is None):
        pixels = loaded.prepared(preprocess)
        source = parquet_files(path, column=column) if parquet else numpy_file(path)
        found = Samples(source, f"images: {pixels}; numbers: as they are", pixels.zero, pixels=pixels)
    elif column is not None:
        raise ConfigurationError(f"--column {column}: columns are for Parquet files and for texts in a CSV table.")
    elif is_table(given[0]):
        found = _table(read_frame(path), loaded, str(path))
    elif given[0] in known and not path.exists():
        found = _data_set(given[0], loaded, preprocess)
    else:
        found = _images([Path(name) for name in given], loaded.prepared(preprocess), masks, known)
    if preprocess is not None and found.pixels is None:
        raise ConfigurationError(f"--preprocess {preprocess}: that is for images, and {found.source.name} has none.")
    if masks is not None and found.source.masks is None:
        raise ConfigurationError(f"--masks {masks}: masks belong to image files, and {found.source.name} has none.")
    _check_size(found, loaded)
    return found


def _check_size(samples: Samples, loaded: Loaded) -> None:
    """The model takes a sample as it was prepared; else which size it does take."""
    sample = next(
        (one for one in map(samples.source.get, range(min(len(samples), 8))) if isinstance(one, Tensor)), None
    )
    if sample is None or takes(loaded.model, shape := tuple(sample.shape)):
        return
    if len(shape) == _IMAGE:
        wanted = image_shape(loaded.model)
        if wanted is not None and (shape[0], wanted[0]) == (_RGB + 1, _RGB):
            raise InputError(
                f"{loaded.spec} takes three channels, and these images have four: leave alpha out, x[:, :3]."
            )
        advice = "say --preprocess, as size=28,grey, or write preprocess = 'size=28,grey' beside the model's factory"
        if wanted is not None and wanted != shape and takes(loaded.model, wanted):
            words = f"size={wanted[-1]}{',grey' if wanted[0] == 1 else ''}"
            advice = f"it takes {_sizes(wanted)}: say --preprocess {words}, or write it beside the model's factory"
        raise InputError(f"{loaded.spec} does not take images of {_sizes(shape)} ({samples.prepared}); {advice}.")
    features, width = samples.source.features, _width(loaded)
    if features and width not in {None, len(features)}:
        raise ConfigurationError(
            f"{samples.source.name} has {len(features)} features, from {features[0]!r} to {features[-1]!r}, and the "
            f"model takes {width}: say which columns it was trained on, schema = "
            'axiograd.datasets.table("train.csv", label=…).schema beside its factory.'
        )


def _sizes(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))


def _width(loaded: Loaded) -> int | None:
    try:
        return guess_shape(loaded.model)[0]
    except ConfigurationError:
        return None


def _table(frame: Any, loaded: Loaded, name: str) -> Samples:
    """Rows as the model's schema prepares them; without one, numbers as they are."""
    schema = loaded.schema
    if schema is None:
        if words := [column for column in frame if not is_numeric(frame[column]) or frame[column].isna().any()]:
            raise ConfigurationError(
                f"{name}: the column {words[0]!r} has words or empty cells, and the model does not say how they become "
                'numbers: write schema = axiograd.datasets.table("train.csv", label=…).schema beside its factory.'
            )
        schema = Schema(tuple(Column(column) for column in frame), standardise=False)
    if lacking := [column for column in schema.names if column not in frame]:
        raise ConfigurationError(
            f"{name} has no column {lacking[0]!r}, which the model takes: {choose_from(lacking[0], list(frame), 8)}."
        )
    try:
        inputs = schema.encode(frame)
        known = bool(schema.classes) and schema.label in frame and not frame[schema.label].isna().any()
        labels = schema.targets(frame).tolist() if known else None
    except InputError as error:
        raise StorageError(f"{name}: {error}") from error
    words = ["columns to mean 0 and standard deviation 1 of the training data"] if schema.standardise else []
    if categories := [column.name for column in schema.columns if column.is_category]:
        words.append(f"one input for each value of {', '.join(categories)}")
    names = [f"row {i}" for i in range(len(frame))]
    return Samples(
        Listed(f"{name}, {len(frame):,} rows", names, inputs.__getitem__, labels, schema.encoded_names),
        ", ".join(words) or "as in the file",
        schema.zero,
        schema.classes,
        schema=schema,
        cells=schema.shown(frame),
    )


def _images(paths: Sequence[Path], pixels: Prepared, masks: Path | None, known: set[str]) -> Samples:
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            meant = choose_from(str(path), sorted(known))
            raise DataMissingError(f"there is no file, folder or data set {str(path)!r}: {meant}.")
        found = image_files(path) if path.is_dir() else [path]
        if not found:
            raise DataMissingError(f"{path} holds no images ({', '.join(sorted(SUFFIXES))}).")
        files += found
    root = paths[0] if len(paths) == 1 and paths[0].is_dir() else None
    labels: list[int] | None = None
    classes: tuple[str, ...] = ()
    if root is not None and all(file.parent != root for file in files):
        classes = tuple(class_folders(root))
        labels = [classes.index(file.relative_to(root).parts[0]) for file in files]
    names = [str(file.relative_to(root)) if root else file.name for file in files]
    name = str(paths[0]) if len(paths) == 1 else f"{len(files)} images"
    # Processes that read the files may be in another folder.
    return image_samples(
        [file.absolute() for file in files], names, name, pixels, labels, classes, _find(masks, files, root)
    )


def image_samples(
    files: Sequence[Path],
    names: Sequence[str],
    name: str,
    pixels: Prepared,
    labels: Sequence[int] | None,
    classes: tuple[str, ...],
    masks: FolderMasks | None = None,
) -> Samples:
    """Image files, with their masks by the files' paths."""
    located = None if masks is None else Masks(tuple(files), masks, pixels)
    source = Listed(name, names, Read(tuple(files), pixels), labels, masks=located)
    return Samples(source, str(pixels), pixels.zero, classes, pixels)


def _find(masks: Path | None, files: Sequence[Path], root: Path | None) -> FolderMasks | None:
    if masks is None:
        return None
    paths = [str(file.absolute()) for file in files]
    return FolderMasks.find(masks.absolute(), paths, None if root is None else root.absolute())


@dataclass(frozen=True)
class Read:
    """An image of some files as the model takes it; one that cannot be made so is named, and can be left out."""

    files: tuple[Path, ...]
    pixels: Prepared

    def __call__(self, place: int) -> Tensor:
        try:
            return self.pixels(decode(self.files[place]))
        except InputError as error:
            raise DamagedImageError(f"{self.files[place]}: {error}") from error


@dataclass(frozen=True)
class Masks:
    """Masks that go where their images go; by an image's place, true inside, or None where there is no mask."""

    files: tuple[Path, ...]
    found: FolderMasks
    pixels: Prepared

    def __call__(self, place: int) -> Tensor | None:
        path = self.files[place]
        if str(path) not in self.found.found:
            return None
        return self.found.region(str(path), _size(path), self.pixels.preprocess)


def _size(path: Path) -> tuple[int, int]:
    """Width and height of an image as people see it, from its header."""
    try:
        with pillow().open(path) as image:
            width, height = image.size
            turned = image.getexif().get(_ORIENTATION) in _TURNED
    except damage() as error:
        raise DamagedImageError(f"{path} cannot be decoded: {str(error).rstrip('.')}.") from error
    return (height, width) if turned else (width, height)


def _data_set(name: str, loaded: Loaded, preprocess: str | None) -> Samples:
    load: Callable[..., Any] = getattr(axiograd.datasets, name)
    parameters = inspect.signature(load).parameters
    usual = "val" if name in {"imagenet", "tiny_imagenet"} else "test"
    data = load(**({"split": usual} if "split" in parameters else {}))
    if isinstance(data, ImageFiles):
        pixels, files = loaded.prepared(preprocess), [Path(path) for path in data.paths]
        names = [f"{file.parent.name}/{file.name}" for file in files]
        boxes = [] if data.boxes is None else [tuple(map(float, box)) for box in data.boxes.tolist()]
        masks = FolderMasks({str(file): (box,) for file, box in zip(files, boxes, strict=True)}) if boxes else None  # type: ignore[misc]
        return image_samples(files, names, data.name, pixels, data.targets.tolist(), data.classes, masks)
    return tensor_samples(data, loaded, preprocess)


def tensor_samples(data: TensorData, loaded: Loaded, preprocess: str | None = None) -> Samples:
    """A data set in memory: rows of features, or pixels in [0, 1]."""
    names = [f"{data.name} {i}" for i in range(len(data))]
    labels = data.targets.tolist() if not data.targets.is_floating_point() else None
    if data.inputs.dim() != 1 + _IMAGE:
        source = Listed(data.name, names, data.inputs.__getitem__, labels, data.names)
        return Samples(source, "as in the data set", "zero, every feature 0")
    pixels = loaded.prepared(preprocess)
    source = Listed(data.name, names, lambda i: pixels.normalise(data.inputs[i]), labels)
    return Samples(source, f"{pixels}, in the data set's size", pixels.zero, data.names, pixels)


def examples_of(samples: Samples, loaded: Loaded, n: int) -> tuple[list[int], Tensor, str]:
    """Places and inputs of some samples that are spread over all, and in words what they are."""
    chosen, like = samples.take(n, spread=True), like_of(loaded.model)
    left_out: dict[str, str] = {}
    places, x, _ = max(chosen.batches(len(chosen), like, left_out), key=lambda one: len(one[0]), default=([], like, []))
    if not places:
        raise InputError(
            f"{samples.source.name}: no sample can be read; {next(iter(left_out.values()), 'it is empty')}."
        )
    rows = [i * len(samples) // len(chosen) for i in places]
    return rows, x, f"{len(x)} of {samples.source.name} ({samples.prepared})"


def first_inputs(samples: Samples, loaded: Loaded) -> Tensor:
    """The first samples that are of one shape, at most 64."""
    return examples_of(samples.take(64), loaded, 64)[1]
