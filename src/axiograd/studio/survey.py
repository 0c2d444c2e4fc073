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
from torch import Tensor, nn

from axiograd._io import replacing
from axiograd.attribution import Attribution
from axiograd.datasets.pictures import Pictures
from axiograd.errors import StorageError

#: Cells across and down into which a map is summed.
GRID = 16
#: Sides of the windows that mass is looked for in, in cells: a sixteenth, and a quarter of a side.
WINDOWS = (2, 4)
Between = Callable[[int, int], None]


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
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as building, building.open("wb") as file:
            np.savez(file, **vars(self))

    @classmethod
    def load(cls, path: Path) -> Survey | None:
        """What was saved, or None."""
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as found:
                return cls(**{name: found[name] for name in ("rows", "predictions", "confidences", "maps")})
        except (OSError, ValueError, KeyError) as error:
            raise StorageError(f"{path} is damaged: {error}.") from error


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
    model: nn.Module,
    method: Attribution,
    pictures: Pictures,
    rows: Sequence[int],
    between: Between,
    batch: int = 100,
) -> Survey:
    """Predictions and maps of these images, by one forward and one backward pass each."""
    found: list[tuple[Any, ...]] = []
    model.eval()
    for start in range(0, len(rows), batch):
        chosen = list(rows[start : start + batch])
        between(start, len(rows))
        outputs, attributions = explained(method, pictures.batch(chosen))
        confidence, prediction = outputs.softmax(1).max(1)
        found.append((np.array(chosen), prediction.numpy(), confidence.numpy(), cells(attributions).numpy()))
    parts = [np.concatenate(column) for column in zip(*found, strict=True)]
    return Survey(parts[0].astype(np.int64), parts[1].astype(np.int64), parts[2].astype(np.float32), parts[3])


def explained(method: Attribution, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs, and the attribution of the largest one."""
    with torch.no_grad():
        largest = method.model(inputs).argmax(1)
    explanation = method.explain(inputs, largest)
    attributions = explanation.attributions
    if not isinstance(attributions, Tensor):
        raise StorageError("the model has several inputs; the studio shows images, one input.")
    return explanation.outputs.detach(), attributions.detach()
