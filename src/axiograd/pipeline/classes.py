"""Which output is which class: names of the model, or of the data where it has none."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from axiograd.datasets import imagenet_classes, tiny_imagenet_classes
from axiograd.errors import TargetError


class ClassNames:
    """The names of each class, the usual one first; "class 7" for those that have none.

    >>> names = ClassNames([("n02444819", "otter"), ("cat",), ()])
    >>> names[0], names[2], names.index("Otter"), names.index("n02444819")
    ('otter', 'class 2', 0, 0)
    """

    def __init__(self, names: Sequence[Sequence[str]] = ()) -> None:
        self.names = [[name for name in each if name] for each in names]

    @classmethod
    def of(cls, model: Sequence[str], data: Sequence[str], n_outputs: int) -> ClassNames:
        """The model's, with all the names that ImageNet has for its classes; else the data's, if they are as many."""
        n = max(n_outputs, 2)
        for known in (imagenet_classes(), tiny_imagenet_classes()):
            if len(model) == n_outputs == len(known) and model[0] in known[0]:
                return cls(known)
        named = model if len(model) == n else data if len(data) == n else ()
        # Hugging Face has "tench, Tinca tinca".
        return cls([(name, *name.split(", ")) if ", " in name else (name,) for name in named])

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
                f"--target {name}: the classes have no names here; give a number, or write classes = ['cat', …] "
                "beside the model's factory."
            )
        known = list(
            dict.fromkeys(each.replace("_", " ") for names in self.names for each in names if not _is_wnid(each))
        )
        near = get_close_matches(name.replace("_", " "), known, n=3)
        meant = f"did you mean {' or '.join(map(repr, near))}? The" if near else "the"
        raise TargetError(
            f"--target {name}: none of the {len(self.names)} classes has that name; {meant} first is {known[0]!r}."
        )

    def match(self, labels: Sequence[int], classes: Sequence[str], n_outputs: int) -> list[int] | None:
        """The output that belongs to each label of the data; None where that cannot be told.

        Classes that have the names of the model's are matched by name; otherwise by order, if there are as many and no
        name stands in another place.
        """
        used = {label: classes[label] for label in set(labels)} if classes else {}
        places = {label: self.places(name) for label, name in used.items() if name}
        n = max(n_outputs, 2)
        if len(classes) in {0, n} and max(labels) < n and all(label in each for label, each in places.items() if each):
            return list(labels)
        if used and len(places) == len(used) and all(len(each) == 1 for each in places.values()):
            return [places[label][0] for label in labels]
        return None


def _plain(name: str) -> str:
    return name.replace("_", " ").casefold().strip()


def _is_wnid(name: str) -> bool:
    return len(name) == 9 and name[0] == "n" and name[1:].isdigit()  # noqa: PLR2004  # n and eight digits
