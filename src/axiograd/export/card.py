"""What an exported file says about itself."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor, nn

from axiograd._calls import Model
from axiograd._state import unwrap
from axiograd._version import __version__
from axiograd.errors import StorageError
from axiograd.homogeneity import Certificate
from axiograd.homogeneity.program import AsModule

FORMAT = 1
#: A tensor of the graph: its name, dtype, and sizes; a word stands for a size that is free.
Signature = tuple[tuple[str, str, tuple[int | str, ...]], ...]


@dataclass(frozen=True)
class Check:
    """How far a file was from eager PyTorch on inputs that the export had not seen, relative to the largest value."""

    #: Rows that were compared, and in batches of which sizes.
    samples: int
    batches: tuple[int, ...]
    #: The largest relative errors of outputs and of attributions, on ties with the file's own gates, without rows on
    #: which rounding alone is more than the tolerance, and the largest relative gap.
    output_error: float
    attribution_error: float
    gap: float
    #: Rows on a kink of the network, the gates that switch there when the input is shifted by 1e-6 of itself, and the
    #: largest error on those rows and on the rounded ones.
    ties: int = 0
    gates: int = 0
    tied_error: float = 0.0
    #: Rows on which no gate switches, and PyTorch's own answer is as uncertain as the file is off.
    rounded: int = 0
    #: Of both kinds, rows that are further off than the tolerance with the file's own gates, too, and the largest error
    #: of attributions with them, where they are known.
    unequal: int = 0
    gated_error: float | None = None

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.batches))
        text = f"checked on {self.samples} new inputs in batches of {sizes}: "
        if max(self.rounded, self.unequal) < self.samples:
            text += (
                f"attributions within {self.attribution_error:.1e} of eager PyTorch, outputs {self.output_error:.1e}, "
            )
        text += f"gap {self.gap:.1e}"
        if self.ties:
            kind = "is a tie" if self.ties == 1 else "are ties"
            text += (
                f"; {self.ties} of them {kind}, at which rounding switches {self.gates} gate{'s' * (self.gates != 1)}"
            )
        if self.rounded:
            text += f"; on {self.rounded} PyTorch's own rounding is larger than the tolerance"
        if not self.ties and not self.rounded:
            return text
        gated = "" if self.gated_error is None else f", with the file's own gates {self.gated_error:.1e}"
        return f"{text} (error there {self.tied_error:.1e}{gated})"


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
    pool: int | None = None
    #: SHA-256 of the model's weights, as `weights_hash` computes it.
    weights: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    check: Check | None = None
    format: int = FORMAT
    #: Whether the file is unmodified; set by whoever reads it.
    intact: bool = field(default=True, compare=False)

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
        lines.append(
            f"weights: sha256 {self.weights[:16]}…; " + ", ".join(f"{k} {v}" for k, v in self.versions.items())
        )
        if not self.intact:
            lines.insert(0, "CHANGED: the file is not the one that was written, and nothing below is known to hold.")
        return "\n".join(lines)

    def to_json(self) -> str:
        """Everything but `intact`, as one line.

        >>> import axiograd
        >>> certificate = axiograd.certify(nn.ReLU(), torch.ones(2, 3))
        >>> card = Card(certificate, (("input", "float32", ("batch", 3)),), (), "zero")
        >>> Card.from_json(card.to_json()) == card
        True
        """
        content = asdict(self) | {"certificate": json.loads(self.certificate.to_json())}
        del content["intact"]
        return json.dumps(content, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, *, intact: bool = True) -> Card:
        try:
            content = json.loads(text)
            content["certificate"] = Certificate.from_json(json.dumps(content["certificate"]))
            for key in ("inputs", "outputs"):
                content[key] = tuple((name, dtype, tuple(sizes)) for name, dtype, sizes in content[key])
            if content["check"] is not None:
                content["check"]["batches"] = tuple(content["check"]["batches"])
                content["check"] = Check(**content["check"])
            content["classes"] = tuple(content["classes"])
            card = cls(**content, intact=intact)
        except (ValueError, TypeError, KeyError) as error:
            raise StorageError(f"what the file says about itself cannot be read: {error}.") from error
        if card.format != FORMAT:
            raise StorageError(f"the file is of format {card.format}; this version of axiograd reads {FORMAT}.")
        return card


def weights_hash(model: Model) -> str:
    """SHA-256 of all parameters and buffers: names, dtypes, shapes and bytes, in the order of the names.

    >>> layer = nn.Linear(1, 1)
    >>> before = weights_hash(layer)
    >>> _ = nn.init.constant_(layer.weight, 7.0)
    >>> weights_hash(layer) == before
    False
    """
    bare = unwrap(model)
    state = (bare if isinstance(bare, nn.Module) else AsModule(bare)).state_dict()
    digest = hashlib.sha256()
    for name in sorted(state):
        value = state[name]
        if isinstance(value, Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def versions(**others: str) -> dict[str, str]:
    """What the file was made with."""
    return {"axiograd": __version__, "torch": torch.__version__, **others, "python": platform.python_version()}


def baseline_in_words(names: Sequence[str], baselines: Sequence[Tensor] | None) -> str:
    """Zero, a number, or the hash of a tensor, for each attributed input."""

    def words(value: Tensor) -> str:
        low, high = float(value.min()), float(value.max())
        if low == high:
            return f"{low:g}"
        digest = hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()
        return f"a tensor from {low:g} to {high:g}, sha256 {digest[:16]}"

    if baselines is None:
        return "zero"
    return ", ".join(f"{name}: {words(value.detach().cpu())}" for name, value in zip(names, baselines, strict=True))


def _described(one: tuple[str, str, tuple[int | str, ...]]) -> str:
    name, dtype, sizes = one
    return f"{name}: {dtype} {'×'.join(map(str, sizes)) or 'scalar'}"
