"""Names that people type, and what they may have meant."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

#: Characters that steer a terminal or turn the direction of text; joiners stay, which Persian and emoji need.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

#: What a model may be named by.
SPEC_HELP = (
    "One of axiograd's models (see `axiograd list`), timm:NAME, torchvision:NAME, hf:NAME_OR_FOLDER, "
    "path/to/file.py:factory, package.module:factory, a file that `axiograd convert` or `train` wrote, or FILE.pt2."
)


def visible(text: str) -> str:
    """Text in which characters that reorder or steer are shown by their number.

    >>> visible("photo\u202egpj.exe")
    'photo⟨U+202E⟩gpj.exe'
    """
    return _HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def choose_from(name: str, known: Iterable[str], most: int | None = None) -> str:
    """Suggestions for an unknown name: the nearest one, then all names or the first `most`.

    >>> choose_from("oter", ["otter", "cat"])
    "did you mean 'otter'? Choose from otter, cat"
    >>> choose_from("Cat", ["otter", "cat", "dog"], most=1)
    "did you mean 'cat'? Choose from otter …"
    """
    names = list(known)
    plain = {one.strip().casefold(): one for one in reversed(names)}
    near = [plain[one] for one in get_close_matches(name.strip().casefold(), plain, n=1)]
    meant = f"did you mean {near[0]!r}? Choose" if near else "choose"
    return f"{meant} from {', '.join(names[:most])}{' …' if most is not None and most < len(names) else ''}"
