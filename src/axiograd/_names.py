"""Names that people type, and what they may have meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def choose_from(name: str, known: Iterable[str]) -> str:
    """What to write instead of a name that is not known: the nearest, then all there are.

    >>> choose_from("oter", ["otter", "cat"])
    "did you mean 'otter'? Choose from otter, cat"
    """
    names = list(known)
    near = get_close_matches(name, names, n=1)
    meant = f"did you mean {near[0]!r}? Choose" if near else "choose"
    return f"{meant} from {', '.join(names)}"
