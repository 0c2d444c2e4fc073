"""How good a network is on images that it was never trained with, and for which reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from axiograd.attribution import Attribution
from axiograd.datasets.pictures import Mask, Pictures
from axiograd.studio.marks import Marks
from axiograd.studio.survey import Between, explained

BATCH = 100


@dataclass(frozen=True)
class Verdict:
    """Of one network on held-out images; shares are of one, and None where nothing is marked."""

    images: int
    accuracy: float
    by_class: dict[str, float]
    #: How much of |attribution| lies where it was said "not here", and in how many images that was said.
    wrong_share: float | None
    marked: int
    #: Accuracy with the marked regions exchanged for those of images of other classes, and without the exchange.
    randomised: float | None
    marked_accuracy: float | None
    right: tuple[int, ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def judge(
    model: nn.Module,
    method: Attribution,
    pictures: Pictures,
    rows: Sequence[int],
    marks: Marks,
    between: Between,
    *,
    seed: int = 0,
) -> Verdict:
    """Accuracy, reasons, and accuracy once the wrong reason tells nothing."""
    model.eval()
    marked = [row for row in rows if marks.masks(row)[0] is not None]
    predictions: dict[int, int] = {}
    for start in range(0, len(rows), BATCH):
        between(start, len(rows) + 2 * len(marked))
        chosen = list(rows[start : start + BATCH])
        with torch.no_grad():
            predictions |= zip(chosen, model(pictures.batch(chosen)).argmax(1).tolist(), strict=True)
    right = {row for row, found in predictions.items() if found == int(pictures.targets[row])}
    inside = total = 0.0
    for start in range(0, len(marked), BATCH):
        between(len(rows) + start, len(rows) + 2 * len(marked))
        chosen = marked[start : start + BATCH]
        mass = explained(method, pictures.batch(chosen))[1].abs().sum(1).double()
        masks = torch.from_numpy(np.stack([_wrong(marks, row) for row in chosen]))
        # Each image counts the same, however large its attributions are.
        shares = (mass * masks).flatten(1).sum(1) / mass.flatten(1).sum(1).clamp(min=1e-30)
        inside, total = inside + float(shares.sum()), total + len(chosen)
    exchanged = randomised(pictures, marked, marks, seed)
    hits = 0
    for start in range(0, len(marked), BATCH):
        between(len(rows) + len(marked) + start, len(rows) + 2 * len(marked))
        with torch.no_grad():
            found = model(exchanged.batch(start, BATCH)).argmax(1)
        hits += int((found == pictures.targets[marked[start : start + BATCH]]).sum())
    labels = pictures.targets[list(rows)].tolist()
    by_class = {
        name: float(np.mean([row in right for row, label in zip(rows, labels, strict=True) if label == k]))
        for k, name in enumerate(pictures.classes)
        if k in labels
    }
    n = len(marked)
    return Verdict(
        len(rows),
        len(right) / max(1, len(rows)),
        by_class,
        inside / total if total else None,
        n,
        hits / n if n else None,
        len(right & set(marked)) / n if n else None,
        tuple(sorted(right)),
    )


def _wrong(marks: Marks, row: int) -> Mask:
    wrong = marks.masks(row)[0]
    return np.zeros(marks.shape, dtype=bool) if wrong is None else wrong


@dataclass(frozen=True)
class MaskPart:
    """A marked region in one image: its box and its pixels."""

    row: int
    top: int
    left: int
    mask: Mask


class randomised:  # noqa: N801  # read as a verb where it is called
    """Images whose marked regions come from images of other classes, at the same size as far as there is one.

    A mask may have several parts, such as the four corners: each is exchanged by itself.
    """

    def __init__(self, pictures: Pictures, rows: Sequence[int], marks: Marks, seed: int = 0) -> None:
        self.pictures, self.rows = pictures, list(rows)
        self.pieces = {row: parts(row, _wrong(marks, row)) for row in self.rows}
        self.random = np.random.default_rng(seed)
        self.pool: dict[int, list[MaskPart]] = {}
        for row, found in self.pieces.items():
            self.pool.setdefault(int(pictures.targets[row]), []).extend(found)

    def batch(self, start: int, size: int) -> Tensor:
        """Some of them, in order."""
        return torch.stack([self._one(row) for row in self.rows[start : start + size]])

    def _one(self, row: int) -> Tensor:
        image = self.pictures.read(row).clone()
        label = int(self.pictures.targets[row])
        others = [piece for other, pieces in self.pool.items() if other != label for piece in pieces]
        for piece in self.pieces[row]:
            if not others:
                break
            height, width = piece.mask.shape
            drawn = [others[i] for i in self.random.integers(0, len(others), 8)]
            donor = min(drawn, key=lambda one: abs(one.mask.shape[0] - height) + abs(one.mask.shape[1] - width))
            tall, wide = donor.mask.shape
            given = self.pictures.read(donor.row)[:, donor.top : donor.top + tall, donor.left : donor.left + wide]
            fitted = given[:, np.arange(height) * tall // height][:, :, np.arange(width) * wide // width]
            place = image[:, piece.top : piece.top + height, piece.left : piece.left + width]
            place.copy_(torch.where(torch.from_numpy(piece.mask), fitted, place))
        return image


def parts(row: int, mask: Mask) -> list[MaskPart]:
    """The connected parts of a mask (neighbours share an edge).

    >>> [(one.top, one.left, one.mask.shape) for one in parts(0, np.array([[1, 0, 0], [1, 0, 1]], dtype=bool))]
    [(0, 0, (2, 1)), (1, 2, (1, 1))]
    """
    labels = np.zeros(mask.shape, dtype=np.int64)
    found: list[MaskPart] = []
    for start in zip(*np.nonzero(mask), strict=True):
        if labels[start]:
            continue
        number = len(found) + 1
        labels[start] = number
        front = [start]
        while front:
            y, x = front.pop()
            for at in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
                inside = 0 <= at[0] < mask.shape[0] and 0 <= at[1] < mask.shape[1]
                if inside and mask[at] and not labels[at]:
                    labels[at] = number
                    front.append(at)
        own = labels == number
        down, across = np.flatnonzero(own.any(1)), np.flatnonzero(own.any(0))
        box = own[down[0] : down[-1] + 1, across[0] : across[-1] + 1]
        found.append(MaskPart(row, int(down[0]), int(across[0]), box))
    return found
