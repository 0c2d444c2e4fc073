"""Which output is which class: names from a file, of the known weights, or of the data set."""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from axiograd.datasets import imagenet_classes, tiny_imagenet_classes
from axiograd.errors import ConfigurationError, DataMissingError, StorageError, TargetError
from axiograd.models import list_models


class ClassNames:
    """The names of each class, the usual one first; "class 7" for those that have none.

    >>> names = ClassNames([("n02444819", "otter"), ("cat",), ()])
    >>> names[0], names[2], names.index("Otter"), names.index("n02444819")
    ('otter', 'class 2', 0, 0)
    """

    def __init__(self, names: Sequence[Sequence[str]] = ()) -> None:
        self.names = [[name for name in each if name] for each in names]

    def __getitem__(self, index: int) -> str:
        named = self.names[index] if 0 <= index < len(self.names) else []
        # A wnid is a name too, but nobody's first choice.
        shown = next((name for name in named if not _is_wnid(name)), named[0] if named else "")
        return shown.replace("_", " ") or f"class {index}"

    def places(self, name: str) -> list[int]:
        """The classes that have this name, in whichever case."""
        return [i for i, names in enumerate(self.names) if _plain(name) in map(_plain, names)]

    def index(self, name: str) -> int:
        """The class with this number or name; TargetError where no class has that name, or more than one."""
        if name.removeprefix("-").isdecimal():
            return int(name)
        found = self.places(name)
        if len(found) == 1:
            return found[0]
        if found:
            raise TargetError(
                f"--target {name}: the classes {', '.join(map(str, found))} have that name; give a number."
            )
        if not any(self.names):
            raise TargetError(
                f"--target {name}: the classes have no names here; give a number, or names by --classes FILE."
            )
        known = list(
            dict.fromkeys(each.replace("_", " ") for names in self.names for each in names if not _is_wnid(each))
        )
        near = get_close_matches(name.replace("_", " "), known, n=3)
        meant = f"did you mean {' or '.join(map(repr, near))}? The" if near else "the"
        raise TargetError(
            f"--target {name}: none of the {len(self.names)} classes has that name; {meant} first is {known[0]!r}."
        )

    @classmethod
    def find(cls, file: Path | None, of_data: Sequence[str], n_outputs: int, known: str) -> ClassNames:
        """The given file's, else those that the known weights have, else the data set's where their number fits."""
        classes = imagenet_classes()
        if file is not None and file.name == "imagenet" and not file.exists() and n_outputs == len(classes):
            return cls(classes)
        if file is not None:
            return cls([(name,) for name in read_names(file, n_outputs)])
        if known in list_models() and n_outputs == len(classes):
            return cls(classes)
        if known == "resnet18" and n_outputs == len(tiny_imagenet_classes()):
            return cls(tiny_imagenet_classes())
        return cls([(name,) for name in of_data] if len(of_data) == max(n_outputs, 2) else ())

    def match(self, labels: Sequence[int], classes: Sequence[str], n_outputs: int) -> list[int] | None:
        """The output that belongs to each label of the data; None where that cannot be told.

        Classes that have the names of the model's are matched by name; otherwise by order, if there are as many.
        """
        n = max(n_outputs, 2)
        used = {label: classes[label] for label in set(labels)} if classes else {}
        if len(classes) == n and all(label in self.places(name) for label, name in used.items()):
            return list(labels)
        places = {label: self.places(name) for label, name in used.items() if name}
        if used and len(places) == len(used) and all(len(each) == 1 for each in places.values()):
            return [places[label][0] for label in labels]
        by_order = not any(places.values()) and len(classes) in {0, n} and max(labels) < n
        return list(labels) if by_order else None


def read_names(path: Path, n_outputs: int) -> list[str]:
    """A name for each output, or for both classes of a single one."""
    names = _read(path)
    if len(names) not in {n_outputs, max(n_outputs, 2)}:
        raise ConfigurationError(
            f"--classes {path} has {len(names)} names, and the model {n_outputs} outputs: name each of them, one per "
            "line."
        )
    return names


def _read(path: Path) -> list[str]:
    """One name per line; or JSON, a list or {"0": name, …}."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise DataMissingError(f"there is no file {path} with class names.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} cannot be read: {error}.") from error
    if path.suffix.lower() != ".json":
        return [line.strip() for line in text.rstrip().splitlines()]
    try:
        content = json.loads(text)
        # A number that is left out is a KeyError: every class has a name.
        return [_last(content[str(i)] if isinstance(content, dict) else content[i]) for i in range(len(content))]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise StorageError(f"{path} is neither a JSON list of names nor {{index: name}}: {error}.") from error


def _last(name: object) -> str:
    """["n01440764", "tench"] names a class by its last word, as torchvision's file does."""
    return str(name[-1]) if isinstance(name, list) and name else str(name)


def _plain(name: str) -> str:
    return name.replace("_", " ").casefold().strip()


def _is_wnid(name: str) -> bool:
    return len(name) == 9 and name[0] == "n" and name[1:].isdigit()  # noqa: PLR2004  # n and eight digits
