"""How good a network is on images that it was never trained with, and for which reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from axiograd.attribution import Attribution
from axiograd.datasets.pictures import Mask, Pictures
from axiograd.studio.marks import Marks
from axiograd.studio.survey import BATCH, Progress, explained, quietly

#: Images of other classes of which the one that is most marked at the same place gives its pixels.
DRAWN = 8


@dataclass(frozen=True)
class Verdict:
    """Of one network on held-out images; shares are of one, and None where nothing is marked."""

    images: int
    accuracy: float
    #: How many of them have something marked as "not here", of which classes, and which classes have nothing marked.
    marked: int
    marked_classes: tuple[str, ...]
    unmarked_classes: tuple[str, ...]
    #: How much of |attribution| lies there.
    wrong_share: float | None
    #: Accuracy on the marked images with the marked regions exchanged, see `exchanged`, and without.
    exchanged: float | None
    marked_accuracy: float | None
    #: The images that it gets right.
    right: tuple[int, ...]


def judge(
    method: Attribution, pictures: Pictures, rows: Sequence[int], marks: Marks, on_progress: Progress = quietly
) -> Verdict:
    """Accuracy, reasons, and accuracy once the marked regions tell nothing."""
    rows, marked = list(rows), marks.wrong(rows)
    model, total = cast("nn.Module", method.model), len(rows) + 2 * len(marked)
    masks = {row: cast("Mask", marks.masks(row)[0]) for row in marked}
    right: set[int] = set()
    for start in range(0, len(rows), BATCH):
        on_progress(start, total)
        right |= _right(model, pictures, rows[start : start + BATCH], pictures.batch(rows[start : start + BATCH]))
    shares, after = 0.0, 0
    random = np.random.default_rng(0)
    for start in range(0, len(marked), BATCH):
        on_progress(len(rows) + 2 * start, total)
        chosen = marked[start : start + BATCH]
        mass = explained(method, pictures.batch(chosen))[1].abs().sum(1).double()
        inside = torch.from_numpy(np.stack([masks[row] for row in chosen]))
        # Each image counts the same, however large its attributions are.
        shares += float(((mass * inside).flatten(1).sum(1) / mass.flatten(1).sum(1).clamp(min=1e-30)).sum())
        after += len(_right(model, pictures, chosen, exchanged(pictures, chosen, masks, rows, random)))
    n = len(marked)
    found, known = set(pictures.targets[marked].tolist()), set(pictures.targets[rows].tolist())
    return Verdict(
        images=len(rows),
        accuracy=len(right) / len(rows),
        marked=n,
        marked_classes=tuple(name for k, name in enumerate(pictures.classes) if k in found),
        unmarked_classes=tuple(name for k, name in enumerate(pictures.classes) if k in known - found),
        wrong_share=shares / n if n else None,
        exchanged=after / n if n else None,
        marked_accuracy=len(right & set(marked)) / n if n else None,
        right=tuple(sorted(right)),
    )


@torch.no_grad()
def _right(model: nn.Module, pictures: Pictures, rows: Sequence[int], inputs: Tensor) -> set[int]:
    hits = model(inputs).argmax(1) == pictures.targets[list(rows)]
    return {row for row, hit in zip(rows, hits.tolist(), strict=True) if hit}


def exchanged(
    pictures: Pictures, rows: Sequence[int], masks: dict[int, Mask], among: Sequence[int], random: np.random.Generator
) -> Tensor:
    """Images with what `masks` says exchanged for the same place in images of other classes, drawn from `among`.

    Of a few that are drawn, the one that is most marked at that place gives its pixels, so that a tag becomes another
    class's tag where there is one, and what other images have in its stead where there is none.
    """
    labels = pictures.targets[list(among)].numpy()
    inputs = pictures.batch(rows)
    nothing = np.zeros(pictures.shape, dtype=bool)
    for image, row in zip(inputs, rows, strict=True):
        others = np.flatnonzero(labels != int(pictures.targets[row]))
        drawn = [among[int(i)] for i in random.choice(others if len(others) else len(labels), DRAWN)]
        donor = max(drawn, key=lambda other: int((masks.get(other, nothing) & masks[row]).sum()))
        image.copy_(torch.where(torch.from_numpy(masks[row]), pictures.read(donor), image))
    return inputs
