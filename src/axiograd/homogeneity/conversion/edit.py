"""What `to_xdnn` returns: the X-DNN, each change that was made to get there, and the proof."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from axiograd.homogeneity.certificate import Certificate


@dataclass(frozen=True)
class Edit:
    """One change: where, from what, to what; `source` is the line of functional code, if it was that."""

    module: str
    before: str
    after: str
    source: str = ""

    def __str__(self) -> str:
        line = f" ({self.source})" if self.source else ""
        return f"{self.module or 'the model'}: {self.before} → {self.after}{line}"


@dataclass(frozen=True)
class Conversion:
    """A model that is an X-DNN, with the changes that made it one and the certificate that proves it.

    >>> import torch
    >>> from axiograd.homogeneity.conversion import to_xdnn
    >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> conversion = to_xdnn(net, torch.randn(8, 4))
    >>> print(conversion)
    Sequential by strip: X-DNN of degree 1, exact
    state dict: 2 entries taken out, 0 new, the others as they were
    2 edits:
      2×  Linear with bias  → Linear without bias  0 … 2
    """

    how: str
    model: nn.Module
    edits: tuple[Edit, ...]
    certificate: "Certificate"
    #: Class of the model before it was converted.
    original: str
    #: Names of the parameters and buffers that were taken out, and of those that are new.
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    def __str__(self) -> str:
        exact = "exact" if self.certificate.exact else "up to the epsilons that the certificate names"
        lines = [f"{self.original} by {self.how}: X-DNN of degree {self.certificate.degree:g}, {exact}"]
        lines.append(
            f"state dict: {len(self.removed)} entries taken out, {len(self.added)} new, the others as they were"
        )
        lines.append(f"{len(self.edits)} edits:")
        return "\n".join(lines + _table(self.edits))


def _table(edits: Iterable[Edit]) -> list[str]:
    groups: dict[tuple[str, str], list[Edit]] = {}
    for edit in edits:
        groups.setdefault((edit.before, edit.after), []).append(edit)
    rows = []
    for (before, after), group in groups.items():
        places = [edit.module or "(the model)" for edit in group]
        where = places[0] if len(places) == 1 else f"{places[0]} … {places[-1]}"
        rows.append((f"{len(group)}×", before, "→ " + after, where, group[0].source))
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(4)]
    return [
        "  " + "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[4]]).rstrip() for row in rows
    ]
