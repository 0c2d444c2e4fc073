"""The card of an exported file: certificate, checks, preprocessing and classes."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor, nn

from axiograd._calls import Model
from axiograd._io import digest
from axiograd._state import unwrap
from axiograd._version import __version__
from axiograd.errors import StorageError
from axiograd.homogeneity import Certificate
from axiograd.homogeneity.program import AsModule

#: What the card is called within a file.
KEY = "axiograd"
#: Tensors of a graph: name, dtype, and sizes; a word stands for a size that is free.
Signature = tuple[tuple[str, str, tuple[int | str, ...]], ...]
#: A largest error that is so many times the median comes from a kink, not from rounding alone.
_KINK = 10


@dataclass(frozen=True)
class Check:
    """How far a file is from eager PyTorch on inputs that the export had not seen, relative to the largest value."""

    samples: int
    #: The graph in float64.
    structure: float
    #: The file as it is: outputs and attributions, over the samples.
    median: float
    largest: float

    def __str__(self) -> str:
        text = (
            f"checked on {self.samples} new inputs: in float64 the graph is within {self.structure:.1e} of eager "
            f"PyTorch; the file is off by {self.median:.1e} in the median, and by {self.largest:.1e} at most"
        )
        kink = self.largest > _KINK * self.median
        return text + " (next to a kink, a ReLU at zero, rounding decides on which side an input is)" * kink


@dataclass(frozen=True)
class Card:
    """The certificate of an exported model, and everything that one must know to run it."""

    certificate: Certificate
    inputs: Signature
    outputs: Signature
    #: In words, per attributed input.
    baseline: str
    #: In words; inside tells whether the file does it itself.
    preprocessing: str = ""
    inside: bool = False
    classes: tuple[str, ...] = ()
    #: Of the model, by `weights_hash`.
    weights: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    check: Check | None = None

    def __str__(self) -> str:
        certificate = self.certificate
        how = "exact" if certificate.exact else "exact up to its layers' epsilons"
        model = certificate.model or "model"
        lines = [
            f"{model}: output and attribution in one graph, degree {certificate.degree:g}, {how}",
            *(f"  in   {_described(each)}" for each in self.inputs),
            *(f"  out  {_described(each)}" for each in self.outputs),
            f"baseline: {self.baseline}",
        ]
        if self.preprocessing:
            lines.append(f"preprocessing{' (inside)' if self.inside else ''}: {self.preprocessing}")
        if self.classes:
            lines.append(f"classes: {len(self.classes)}, from {self.classes[0]!r} to {self.classes[-1]!r}")
        lines += [f"assuming: {each}" for each in certificate.assumptions]
        if self.check is not None:
            lines.append(str(self.check))
        used = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return "\n".join([*lines, f"weights: sha256 {self.weights}…; {used}"])

    def to_json(self) -> str:
        """Everything, as one line.

        >>> import axiograd
        >>> certificate = axiograd.certify(nn.ReLU(), torch.ones(2, 3))
        >>> card = Card(certificate, (("input", "float32", ("batch", 3)),), (), "zero")
        >>> Card.from_json(card.to_json()) == card
        True
        """
        content = asdict(self) | {"certificate": json.loads(self.certificate.to_json())}
        return json.dumps(content, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Card:
        try:
            content = json.loads(text)
            content["certificate"] = Certificate.from_json(json.dumps(content["certificate"]))
            for key in ("inputs", "outputs"):
                content[key] = tuple((name, dtype, tuple(sizes)) for name, dtype, sizes in content[key])
            content["check"] = content["check"] and Check(**content["check"])
            content["classes"] = tuple(content["classes"])
            return cls(**content)
        except (ValueError, TypeError, KeyError) as error:
            raise StorageError(f"the file's card cannot be read: {error}.") from error


def weights_hash(model: Model) -> str:
    """A short SHA-256 of all parameters and buffers, with their names, dtypes and shapes.

    >>> layer = nn.Linear(1, 1)
    >>> before = weights_hash(layer)
    >>> _ = nn.init.constant_(layer.weight, 7.0)
    >>> weights_hash(layer) == before
    False
    """
    bare = unwrap(model)
    return digest((bare if isinstance(bare, nn.Module) else AsModule(bare)).state_dict())


def versions(**others: str) -> dict[str, str]:
    """What the file was made with."""
    return {"axiograd": __version__, "torch": torch.__version__, **others, "python": platform.python_version()}


def baseline_in_words(names: Sequence[int | str], baselines: Sequence[Tensor]) -> str:
    """Zero, a number, or the hash of a tensor, for each attributed input."""

    def words(value: Tensor) -> str:
        low, high = float(value.min()), float(value.max())
        return f"{low:g}" if low == high else f"a tensor from {low:g} to {high:g}, sha256 {digest(value)}"

    return ", ".join(f"{name}: {words(value)}" for name, value in zip(names, baselines, strict=False)) or "zero"


def _described(one: tuple[str, str, tuple[int | str, ...]]) -> str:
    name, dtype, sizes = one
    return f"{name}: {dtype} {'×'.join(map(str, sizes)) or 'scalar'}"
