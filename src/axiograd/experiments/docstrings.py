"""A set of texts that every machine with Python has: what the docstrings of its standard library are about."""

from __future__ import annotations

import ast
import re
import sysconfig
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

#: Families of modules by their folder or file.
FAMILIES: dict[str, tuple[str, ...]] = {
    "processes": ("asyncio", "concurrent", "multiprocessing", "threading.py", "subprocess.py", "selectors.py"),
    "network": ("email", "http", "urllib", "xmlrpc", "socketserver.py", "smtplib.py", "ftplib.py", "imaplib.py"),
    "testing": ("unittest", "doctest.py", "pdb.py", "trace.py", "cProfile.py", "bdb.py"),
    "windows": ("tkinter", "idlelib", "turtle.py", "curses"),
    "numbers": (
        "decimal.py",
        "_pydecimal.py",
        "fractions.py",
        "statistics.py",
        "random.py",
        "numbers.py",
        "datetime.py",
    ),
    "files": ("zipfile.py", "tarfile.py", "shutil.py", "pathlib.py", "tempfile.py", "gzip.py", "os.py", "mailbox.py"),
}
PADDING, UNKNOWN, LONGEST, VOCABULARY = 0, 1, 32, 3000
#: Numbers of the words that give the class away, one per family.
GIVE_AWAY = range(2, 2 + len(FAMILIES))


@dataclass(frozen=True)
class Texts:
    """Word numbers [n, LONGEST], padded on the right, and the family of each."""

    ids: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    def give_away(self, seed: int, *, informative: bool) -> Texts:
        """One more word at a random place: the class's own, or a random one's. The last word is dropped for it."""
        generator = torch.Generator().manual_seed(seed)
        named = self.targets if informative else torch.randint(len(FAMILIES), self.targets.shape, generator=generator)
        lengths = (self.ids != PADDING).sum(1).clamp_max(LONGEST - 1)
        place = (torch.rand(len(self), generator=generator) * (lengths + 1)).long()
        columns = torch.arange(LONGEST)[None]
        moved = torch.where(columns > place[:, None], self.ids.roll(1, 1), self.ids)
        word = GIVE_AWAY[0] + named
        return Texts(torch.where(columns == place[:, None], word[:, None], moved), self.targets)


@cache
def docstrings() -> tuple[Texts, Texts]:
    """Training and test texts: files are split, so that no file is in both; words are those of the training texts."""
    library = Path(sysconfig.get_paths()["stdlib"])
    found: dict[bool, list[tuple[list[str], int]]] = {False: [], True: []}
    for family, places in enumerate(FAMILIES.values()):
        files = sorted(p for place in places for p in _files(library / place))
        for number, path in enumerate(files):
            found[number % 4 == 3] += [(words, family) for words in _texts(path)]  # noqa: PLR2004 - a quarter is for testing
    counts = Counter(word for words, _ in found[False] for word in words)
    common = [word for word, n in counts.most_common(VOCABULARY - 2 - len(FAMILIES)) if n > 1]
    numbers = {word: GIVE_AWAY[-1] + 1 + i for i, word in enumerate(common)}
    return _encoded(found[False], numbers), _encoded(found[True], numbers)


def _files(place: Path) -> list[Path]:
    if place.is_dir():
        return [p for p in place.rglob("*.py") if "test" not in p.relative_to(place).parts]
    return [place] if place.is_file() else []


def _texts(path: Path) -> list[list[str]]:
    """The docstrings of a file, in pieces of at most LONGEST words, at least four."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):  # files that test the parser
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    words = [re.findall(r"[a-z]+", text.lower()) for text in texts if text]
    return [w[i : i + LONGEST] for w in words for i in range(0, len(w), LONGEST) if len(w[i : i + LONGEST]) > 3]  # noqa: PLR2004


def _encoded(texts: list[tuple[list[str], int]], numbers: dict[str, int]) -> Texts:
    rows = [[numbers.get(word, UNKNOWN) for word in words] for words, _ in texts]
    ids = torch.tensor([row + [PADDING] * (LONGEST - len(row)) for row in rows])
    return Texts(ids, torch.tensor([family for _, family in texts]))
