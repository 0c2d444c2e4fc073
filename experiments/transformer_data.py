"""Images in patches and texts in words, with the small transformer that suits each.

The texts are what every machine with Python has: the docstrings of its standard library, by what they are about.
"""

import ast
import re
import sysconfig
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor, nn

from axiograd.datasets import TensorData, add_decoy, fashion_mnist, shapes, tiny_imagenet
from axiograd.models import TextEncoder, ViT

#: Families of modules by their folder or file.
FAMILIES: dict[str, str] = {
    "processes": "asyncio concurrent multiprocessing threading.py subprocess.py selectors.py",
    "network": "email http urllib xmlrpc socketserver.py smtplib.py ftplib.py imaplib.py",
    "testing": "unittest doctest.py pdb.py trace.py cProfile.py bdb.py",
    "windows": "tkinter idlelib turtle.py curses",
    "numbers": "decimal.py _pydecimal.py fractions.py statistics.py random.py numbers.py datetime.py",
    "files": "zipfile.py tarfile.py shutil.py pathlib.py tempfile.py gzip.py os.py mailbox.py",
}
PADDING, UNKNOWN, LONGEST, VOCABULARY, WIDTH = 0, 1, 32, 3000, 48
#: Numbers of the words that give the class away, one per family.
GIVE_AWAY = range(2, 2 + len(FAMILIES))


@dataclass(frozen=True)
class Set:
    """Inputs and classes for training and testing, and the transformer that suits them."""

    train: TensorData
    test: TensorData
    build: Callable[..., nn.Module]
    #: Side of a patch; None for words.
    patch: int | None

    def call(self, x: Tensor) -> dict[str, Tensor]:
        """The arguments of the network."""
        return {"x": x} if self.patch else {"input_ids": x, "attention_mask": (x != PADDING).long()}

    @property
    def layer(self) -> str | None:
        """What is attributed to: pixels, or the words' embeddings."""
        return None if self.patch else "embedding"

    def tokens(self, attribution: Tensor) -> Tensor:
        """One number per patch or word."""
        if self.patch is None:
            return attribution.sum(2)
        n, channels, height, width = attribution.shape
        patches = attribution.reshape(n, channels, height // self.patch, self.patch, width // self.patch, self.patch)
        return patches.sum((1, 3, 5)).flatten(1)

    def without(self, x: Tensor, out: Tensor) -> Tensor:
        """The input without some of its tokens, [n, tokens] booleans: patches of the mean colour, words left out."""
        if self.patch is None:
            return x.masked_fill(out, PADDING)
        side = x.shape[-1] // self.patch
        mask = out.reshape(len(x), 1, side, side).repeat_interleave(self.patch, 2).repeat_interleave(self.patch, 3)
        return x.masked_fill(mask, 0.0)


@cache
def load(name: str, n_train: int, n_test: int, *, held_out: bool = False, shortcut: bool = False) -> Set:
    """A set by its name; images have mean 0 and standard deviation 1 over the training set.

    With `held_out`, samples of the training set that come after the first `n_train` take the place of the test set.
    With a shortcut, a patch or a word tells the class of training samples, and a random one of test samples.
    """
    parts = [
        ("train", slice(n_train)),
        ("train", slice(n_train, n_train + n_test)) if held_out else ("test", slice(n_test)),
    ]
    if name == "docstrings":
        train, test = (_shuffled(texts()[split], part) for split, part in parts)
        if shortcut:
            train, test = give_away(train, 0, informative=True), give_away(test, 1, informative=False)
        build = partial(TextEncoder, len(FAMILIES), VOCABULARY, dim=WIDTH, depth=2, longest=LONGEST)
        return Set(train, test, build, None)
    source = {"Fashion-MNIST": fashion_mnist, "shapes": shapes, "Tiny ImageNet, 20 classes": _tiny}[name]
    if name.startswith("Tiny"):
        train, test = (_shuffled(source(split), part) for split, part in parts)
    else:
        train, test = (source(split).select(part) for split, part in parts)
    if shortcut:
        train, test = add_decoy(train, informative=True), add_decoy(test, informative=False, seed=1)
    mean, std = train.inputs.mean(), train.inputs.std()
    train, test = (
        TensorData((d.inputs - mean) / std, d.targets, name, shortcuts=d.shortcuts if shortcut else None)
        for d in (train, test)
    )
    channels, size, patch = *train.inputs.shape[1:3], 8 if name.startswith("Tiny") else 4
    classes = int(train.targets.max()) + 1
    return Set(train, test, partial(ViT, classes, channels, image_size=size, patch=patch, dim=WIDTH, depth=2), patch)


@cache
def _tiny(split: str) -> TensorData:
    return tiny_imagenet("train" if split == "train" else "val").load()


def _shuffled(data: TensorData, part: slice) -> TensorData:
    return data.select(torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[part])


def give_away(data: TensorData, seed: int, *, informative: bool) -> TensorData:
    """One more word at a random place: the class's own, or a random one's. The last word is dropped for it."""
    generator = torch.Generator().manual_seed(seed)
    named = data.targets if informative else torch.randint(len(FAMILIES), data.targets.shape, generator=generator)
    lengths = (data.inputs != PADDING).sum(1).clamp_max(LONGEST - 1)
    place = (torch.rand(len(data), generator=generator) * (lengths + 1)).long()[:, None]
    columns = torch.arange(LONGEST)[None]
    moved = torch.where(columns > place, data.inputs.roll(1, 1), data.inputs)
    ids = torch.where(columns == place, GIVE_AWAY[0] + named[:, None], moved)
    return replace(data, inputs=ids, shortcuts=columns == place)


@cache
def texts() -> dict[str, TensorData]:
    """Word numbers [n, LONGEST], padded on the right, and families; a quarter of the files is for testing."""
    library = Path(sysconfig.get_paths()["stdlib"])
    found: dict[str, list[tuple[list[str], int]]] = {"train": [], "test": []}
    for family, places in enumerate(FAMILIES.values()):
        files = sorted(path for place in places.split() for path in _files(library / place))
        for number, path in enumerate(files):
            found["test" if number % 4 == 3 else "train"] += [(words, family) for words in _docstrings(path)]
    counts = Counter(word for words, _ in found["train"] for word in words)
    common = [word for word, n in counts.most_common(VOCABULARY - 2 - len(FAMILIES)) if n > 1]
    numbers = {word: GIVE_AWAY[-1] + 1 + i for i, word in enumerate(common)}
    padded = {
        split: [
            [numbers.get(word, UNKNOWN) for word in words] + [PADDING] * (LONGEST - len(words)) for words, _ in part
        ]
        for split, part in found.items()
    }
    return {
        split: TensorData(torch.tensor(rows), torch.tensor([family for _, family in found[split]]), "docstrings")
        for split, rows in padded.items()
    }


def _files(place: Path) -> list[Path]:
    if place.is_dir():
        return [path for path in place.rglob("*.py") if "test" not in path.relative_to(place).parts]
    return [place] if place.is_file() else []


def _docstrings(path: Path) -> list[list[str]]:
    """The docstrings of a file, in pieces of at most LONGEST words, at least four."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):  # files that test the parser
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    words = [re.findall(r"[a-z]+", text.lower()) for text in found if text]
    return [w[i : i + LONGEST] for w in words for i in range(0, len(w), LONGEST) if len(w[i : i + LONGEST]) > 3]
