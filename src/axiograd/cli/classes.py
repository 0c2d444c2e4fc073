"""Names of classes: from a file, from the data set, or the ImageNet names that are on this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from axiograd.datasets import imagenet_sample
from axiograd.errors import AxiogradError, DataMissingError, StorageError
from axiograd.models import list_models

IMAGENET_CLASSES = 1000


class ClassNames:
    """A name for each class, "class 7" for those that have none.

    >>> names = ClassNames(["cat", ""])
    >>> names[0], names[1], names[7]
    ('cat', 'class 1', 'class 7')
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(names)

    def __getitem__(self, index: int) -> str:
        named = 0 <= index < len(self.names) and bool(self.names[index])
        return self.names[index].replace("_", " ") if named else f"class {index}"

    @classmethod
    def find(cls, file: Path | None, of_data: Sequence[str], n_outputs: int, spec: str) -> ClassNames:
        """The given file's, else the data set's where their number fits, else ImageNet's for our ImageNet models."""
        if file is not None:
            return cls(read_names(file))
        if len(of_data) == n_outputs and any(of_data):
            return cls(of_data)
        ours = spec in list_models() or spec.endswith(".safetensors")
        if ours and n_outputs == IMAGENET_CLASSES:
            try:
                return cls(imagenet_sample().classes)
            except AxiogradError:  # the photos are not here: numbers will do
                return cls()
        return cls()


def read_names(path: Path) -> list[str]:
    """One name per line; or JSON, a list or {"0": name, …}."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise DataMissingError(f"there is no file {path} with class names.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    if path.suffix.lower() != ".json":
        return [line.strip() for line in text.splitlines()]
    try:
        content = json.loads(text)
        if isinstance(content, dict):
            size = max((int(key) for key in content), default=-1) + 1
            return [_last(content.get(str(i), "")) for i in range(size)]
        return [_last(each) for each in content]
    except (ValueError, TypeError) as error:
        raise StorageError(f"{path} is neither a JSON list of names nor {{index: name}}: {error}") from error


def _last(name: object) -> str:
    """["n01440764", "tench"] names a class by its last word, as torchvision's file does."""
    return str(name[-1]) if isinstance(name, list) and name else str(name)
