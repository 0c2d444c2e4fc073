"""The subsamples of the NHANES experiment: who trains, who validates, who tests, on which scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from axiograd.datasets import TensorData, nhanes
from axiograd.errors import ConfigurationError
from axiograd.experiments.item import Scale

#: Rows to train on, and as many to validate on.
ROWS = 100


@dataclass(frozen=True)
class Subsamples:
    """Some subsamples stacked: inputs [subsamples, rows, features] without gaps, targets [subsamples, rows]."""

    train: Tensor
    train_targets: Tensor
    val: Tensor
    val_targets: Tensor

    def __len__(self) -> int:
        return len(self.train)

    def to(self, dtype: torch.dtype) -> Subsamples:
        """The same with other numbers."""
        return Subsamples(*(getattr(self, field.name).to(dtype) for field in fields(self)))


@dataclass(frozen=True)
class Scaling:
    """Missing values become the mean, then (x − mean) / standard deviation, both of the rows it was fitted on.

    >>> rows = torch.tensor([[1.0, 5.0], [3.0, 5.0], [torch.nan, 5.0]], dtype=torch.float64)
    >>> Scaling.fit(rows).apply(rows)
    tensor([[-1.2247,  0.0000],
            [ 1.2247,  0.0000],
            [ 0.0000,  0.0000]], dtype=torch.float64)
    """

    mean: Tensor
    deviation: Tensor

    @classmethod
    def fit(cls, rows: Tensor) -> Scaling:
        """A gap counts as the mean in the deviation; a constant feature, or one without values, is left as wide."""
        mean = rows.nanmean(0).nan_to_num()
        deviation = (rows - mean).nan_to_num().square().mean(0).sqrt()
        # Rounding makes the deviation of a constant a little more than 0.
        constant = deviation <= 10 * torch.finfo(rows.dtype).eps * mean.abs()
        return cls(mean, torch.where(constant, torch.ones_like(deviation), deviation))

    def apply(self, rows: Tensor) -> Tensor:
        """The rows on this scale; the mean, which fills the gaps, is 0 there."""
        return ((rows - self.mean) / self.deviation).nan_to_num()


def split(n: int, i: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of subsample i to train, validate and test on: scikit-learn's `train_test_split` with random_state=i, twice.

    >>> train, val, test = split(1000, 0)
    >>> len(train), len(val), len(test), len({*train.tolist(), *val.tolist(), *test.tolist()})
    (100, 100, 800, 1000)
    """
    if n <= 2 * ROWS:
        raise ConfigurationError(f"{n} rows: a subsample trains and validates on {2 * ROWS}, none is left to test on.")
    order = torch.from_numpy(np.random.RandomState(i).permutation(n))
    inside = torch.from_numpy(np.random.RandomState(i).permutation(2 * ROWS))
    both = order[n - 2 * ROWS :]
    return both[inside[ROWS:]], both[inside[:ROWS]], order[: n - 2 * ROWS]


def subsamples(data: TensorData, numbers: Sequence[int]) -> Subsamples:
    """Training and validation rows of these subsamples, scaled as their training rows want it, in float32."""
    parts: list[tuple[Tensor, ...]] = []
    for i in numbers:
        train, val, _ = split(len(data), i)
        scaling = Scaling.fit(data.inputs[train])
        x, x_val = (scaling.apply(data.inputs[rows]).float() for rows in (train, val))
        parts.append((x, data.targets[train].float(), x_val, data.targets[val].float()))
    return Subsamples(*map(torch.stack, zip(*parts, strict=True)))


def held_out(data: TensorData, i: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of all who are neither trained nor validated on, scaled as the training rows want it."""
    train, _, rest = split(len(data), i)
    return Scaling.fit(data.inputs[train]).apply(data.inputs[rest]).float(), data.targets[rest].float()


def procedural(n: int = 3000, features: int = 118, seed: int = 0) -> TensorData:
    """A table that needs no download: three of its features tell, a fifth are yes or no, a tenth is missing.

    >>> data = procedural(500)
    >>> data.inputs.shape, bool(data.inputs.isnan().any()), 0.6 < float(data.targets.mean()) < 0.9
    (torch.Size([500, 118]), True, True)
    """
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, features, generator=generator, dtype=torch.float64)
    # As in a survey, most features are variations on a few themes.
    themes = torch.randn(n, 8, generator=generator, dtype=torch.float64)
    inputs[:, 3:] = 0.9 * themes[:, torch.arange(3, features) % 8] + 0.45 * inputs[:, 3:]
    score = inputs[:, :3] @ torch.tensor([2.5, -1.6, 1.0], dtype=torch.float64) + 2.2
    targets = (torch.rand(n, generator=generator, dtype=torch.float64) < score.sigmoid()).double()
    inputs[:, -(features // 5) :] = (inputs[:, -(features // 5) :] > 1).double()
    inputs[torch.rand(n, features, generator=generator) < 0.1] = torch.nan  # noqa: PLR2004
    names = tuple(f"feature {i}" for i in range(features))
    return TensorData(inputs, targets, f"procedural table ({n} rows, 3 of {features} features tell)", names)


def load(scale: Scale) -> TensorData:
    """The procedural table for the quick form, else NHANES I: the authors' file where it is given."""
    return procedural() if scale == "quick" else nhanes()
