"""What a network looks at: its prediction for each image, and where the mass of its attribution lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from axiograd._io import replacing
from axiograd.attribution import Attribution
from axiograd.datasets.pictures import Pictures

#: Cells across and down into which a map is summed.
GRID = 16
#: Images that go through a network together.
BATCH = 100
#: Called between batches with what is done and what is to do; it may raise to stop.
Progress = Callable[[int, int], None]


def quietly(done: int, total: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class Survey:
    """One row per image that was looked at."""

    rows: NDArray[np.int64]
    predictions: NDArray[np.int64]
    confidences: NDArray[np.float32]
    #: |attribution| summed over channels and cells, each map adding up to one: [n, GRID, GRID].
    maps: NDArray[np.float32]

    def save(self, path: Path) -> None:
        """Whole or not at all."""
        with replacing(path) as building, building.open("wb") as file:
            np.savez(file, **vars(self))

    @classmethod
    def load(cls, path: Path) -> Survey:
        """What was saved."""
        with np.load(path, allow_pickle=False) as found:
            return cls(**found)


def split(targets: Tensor, *, share: float = 0.2, seed: int = 0) -> tuple[list[int], list[int]]:
    """Rows to train with, and rows to judge by: a share of each class, at least one image of those that have two.

    >>> split(torch.tensor([0, 0, 0, 0, 0, 1]))
    ([0, 1, 3, 4, 5], [2])
    """
    random, found = np.random.default_rng(seed), targets.numpy()
    held: set[int] = set()
    for label in np.unique(found):
        rows = random.permutation(np.flatnonzero(found == label))
        if len(rows) > 1:
            held.update(rows[: max(1, round(share * len(rows)))].tolist())
    return [row for row in range(len(found)) if row not in held], sorted(held)


def sample(rows: Sequence[int], most: int, seed: int = 0) -> list[int]:
    """At most so many of the rows, in their order."""
    if len(rows) <= most:
        return list(rows)
    chosen = np.random.default_rng(seed).choice(len(rows), most, replace=False)
    return [rows[i] for i in np.sort(chosen)]


def cells(attributions: Tensor) -> Tensor:
    """|a| summed over channels and cells, each map adding up to one; all zero where there is no attribution.

    >>> cells(torch.ones(1, 3, 32, 32))[0, 0, 0] * GRID * GRID
    tensor(1.)
    """
    mass = attributions.abs().sum(1, keepdim=True).double()
    pooled = F.adaptive_avg_pool2d(mass, GRID).squeeze(1)
    total = pooled.sum((1, 2), keepdim=True)
    return torch.where(total > 0, pooled / total, torch.zeros_like(pooled)).float()


def look(
    method: Attribution, pictures: Pictures, rows: Sequence[int], on_progress: Progress = quietly, batch: int = BATCH
) -> Survey:
    """Predictions and maps of these images."""
    found: list[tuple[Any, ...]] = []
    for start in range(0, len(rows), batch):
        on_progress(start, len(rows))
        chosen = list(rows[start : start + batch])
        outputs, attributions = explained(method, pictures.batch(chosen))
        confidence, prediction = outputs.softmax(1).max(1)
        found.append((np.array(chosen), prediction.numpy(), confidence.numpy(), cells(attributions).numpy()))
    return Survey(*(np.concatenate(column) for column in zip(*found, strict=True)))


def explained(method: Attribution, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs, and the attribution of the largest one: it is its own gradient's target."""
    explanation = method.explain(inputs, lambda output: output.max(1).values)
    outputs, attributions = explanation.outputs, explanation.attributions
    assert isinstance(attributions, Tensor)  # noqa: S101  # images, one input
    return outputs.detach(), attributions.detach()
