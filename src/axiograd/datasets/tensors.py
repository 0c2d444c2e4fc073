"""A data set that fits in memory."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from axiograd.errors import ConfigurationError


@dataclass(frozen=True, eq=False)
class TensorData(Dataset[tuple[Tensor, ...]]):
    """Tensors with one row per sample; an item is (input, target) and then the mask, shortcut and box it has.

    `names` are those of the classes, or of a table's features. `masks` [n, 1, height, width] are true where
    the object is, `shortcuts` where something gives the class away; `boxes` are x0, y0, x1, y1, half-open.

    >>> data = TensorData(torch.zeros(3, 2), torch.tensor([0, 1, 0]), name="three zeros")
    >>> len(data), data[1]
    (3, (tensor([0., 0.]), tensor(1)))
    >>> data.select(data.targets == 0)
    TensorData('three zeros': 2 samples of (2,), torch.float32)
    """

    inputs: Tensor
    targets: Tensor
    name: str
    names: tuple[str, ...] = ()
    masks: Tensor | None = None
    shortcuts: Tensor | None = None
    boxes: Tensor | None = None

    def __post_init__(self) -> None:
        lengths = {key: len(value) for key, value in self.per_sample().items()}
        if len(set(lengths.values())) > 1:
            raise ConfigurationError(f"{self.name}: different numbers of samples, {lengths}.")

    def per_sample(self) -> dict[str, Tensor]:
        """The tensors that have one row per sample, in the order of an item."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {key: value for key, value in values.items() if isinstance(value, Tensor)}

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return tuple(value[index] for value in self.per_sample().values())

    def select(self, rows: Tensor | slice) -> "TensorData":
        """The data set of some of the rows: a slice, indices, or a boolean mask."""
        changed: dict[str, Any] = {key: value[rows] for key, value in self.per_sample().items()}
        return replace(self, **changed)

    def batches(self, size: int, *, seed: int | None = None) -> Iterator[tuple[Tensor, ...]]:
        """Batches without a loader's overhead per sample, in order or, with a seed, shuffled.

        >>> data = TensorData(torch.arange(4.0)[:, None], torch.arange(4), name="four")
        >>> [targets.tolist() for _, targets in data.batches(3)]
        [[0, 1, 2], [3]]
        """
        order = torch.arange(len(self))
        if seed is not None:
            order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        for rows in torch.split(order, size):
            yield tuple(value[rows] for value in self.per_sample().values())

    def __repr__(self) -> str:
        shape = tuple(self.inputs.shape[1:])
        return f"{type(self).__name__}({self.name!r}: {len(self)} samples of {shape}, {self.inputs.dtype})"


def check_choice(what: str, value: str, choices: tuple[str, ...]) -> None:
    """ConfigurationError unless the value is one of the choices."""
    if value not in choices:
        raise ConfigurationError(f"{what}={value!r}: choose one of {', '.join(map(repr, choices))}.")


Root = str | os.PathLike[str] | None
