"""From data sets to batches: inputs, targets, arguments of the prior, and which samples they are."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset, default_collate

from axiograd.errors import ConfigurationError, InputError

#: The argument of a batch that says how much each of its samples counts in the task loss.
SAMPLE_WEIGHT = "sample_weight"


class Batch(NamedTuple):
    """Inputs, targets, arguments of the prior (masks, boxes …), and the places of the samples in their data set."""

    inputs: Any
    target: Any
    arguments: dict[str, Any]
    indices: list[int]


def read_batch(collated: Any, indices: Sequence[int] = ()) -> Batch:
    """A batch from what a data set gives.

    That is `(inputs, target)`, `(inputs, target, {name: argument})`, or `{"inputs": …, "target": …, name: argument}`;
    inputs are a tensor, a tuple, or a mapping.

    >>> batch = read_batch((torch.zeros(2, 3), torch.tensor([0, 1]), {"mask": torch.ones(2, 3)}), [7, 4])
    >>> list(batch.arguments), batch.indices
    (['mask'], [7, 4])
    """
    if isinstance(collated, Mapping) and {"inputs", "target"} <= collated.keys():
        arguments = {name: value for name, value in collated.items() if name not in {"inputs", "target"}}
        return Batch(collated["inputs"], collated["target"], arguments, list(indices))
    if isinstance(collated, list | tuple) and len(collated) in {2, 3}:
        inputs, target, *rest = collated
        if not rest or isinstance(rest[0], Mapping):
            inputs = tuple(inputs) if isinstance(inputs, list) else inputs
            return Batch(inputs, target, dict(rest[0]) if rest else {}, list(indices))
    kind = f"a {type(collated).__name__}"
    if isinstance(collated, list | tuple):
        kind += f" of ({', '.join(type(part).__name__ for part in collated)})"
    raise InputError(
        "a sample must be (inputs, target), (inputs, target, {name: prior argument}) or a mapping with "
        f"'inputs' and 'target'; the data set gave {kind}."
    )


class WithArguments(Dataset[Any]):
    """A `TensorData` whose columns (masks, shortcuts, boxes) become arguments of the prior, named as the prior does.

    >>> from axiograd.datasets import TensorData
    >>> data = TensorData(torch.zeros(3, 2), torch.arange(3), name="three", shortcuts=torch.ones(3, 2))
    >>> WithArguments(data, mask="shortcuts")[1]
    (tensor([0., 0.]), tensor(1), {'mask': tensor([1., 1.])})
    """

    def __init__(self, data: Any, **columns: str) -> None:
        self.columns: dict[str, Tensor] = data.per_sample()
        # A table's weights count wherever it is used, in training and in validation.
        self.names = {SAMPLE_WEIGHT: "weights", **columns} if "weights" in self.columns else columns
        missing = [column for column in columns.values() if column not in self.columns]
        if missing:
            raise ConfigurationError(f"{data!r} has no {', '.join(missing)}; it has {', '.join(self.columns)}.")

    def __len__(self) -> int:
        return len(self.columns["inputs"])

    def __getitem__(self, index: int) -> Any:
        return self.collated(index)

    def collated(self, rows: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Inputs, target and arguments of one row or of many."""
        arguments = {name: self.columns[column][rows] for name, column in self.names.items()}
        return self.columns["inputs"][rows], self.columns["targets"][rows], arguments


class _Batches(Dataset[Batch]):
    """The user's data set, read a batch at a time."""

    def __init__(self, data: Any, collate: Callable[[list[Any]], Any] | None) -> None:
        self.data, self.collate = data, collate

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, indices: list[int]) -> Batch:  # torch's loader prefers it to __getitem__
        return read_batch(self._collated(indices), indices)

    def _collated(self, indices: list[int]) -> Any:
        if self.collate is None:
            if hasattr(self.data, "collated"):
                return self.data.collated(indices)
            if isinstance(self.data, TensorDataset):
                return [tensor[indices] for tensor in self.data.tensors]
        return (self.collate or default_collate)([self.data[index] for index in indices])


def loader(
    data: Any,
    batch_size: int,
    *,
    shuffle: bool,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
    num_workers: int = 0,
    collate: Callable[[list[Any]], Any] | None = None,
    pin_memory: bool = False,
) -> DataLoader[Batch]:
    """Batches whose order is a function of (seed, epoch); `batch_size` is that of all processes together.

    Rank r of R takes every R-th sample, so that together they see the batches that one process would see.
    """
    if batch_size % world_size:
        raise ConfigurationError(
            f"batch_size {batch_size} is for all processes together, and does not divide among {world_size} of them."
        )
    batches = _Batches(data, collate)
    return DataLoader(
        batches,
        batch_size // world_size,
        sampler=DistributedSampler(batches, world_size, rank, shuffle=shuffle, seed=seed),
        num_workers=num_workers,
        collate_fn=_as_is,
        pin_memory=pin_memory,
        # Its own, which is seeded for each epoch: workers draw the same in a run that was resumed.
        generator=torch.Generator(),
    )


def seed_epoch(seed: int, epoch: int, rank: int = 0) -> None:
    """Seed the global generators of Python, NumPy and torch by where the run is."""
    place = np.random.SeedSequence([seed, epoch, rank]).generate_state(1, np.uint64).item() >> 1
    random.seed(place)
    np.random.seed(place % 2**32)  # noqa: NPY002 - users' augmentations draw from the global generator
    torch.manual_seed(place)


def ensure_dataset(data: Any, what: str) -> Any:
    """A map-style data set; a tuple of tensors or arrays becomes one."""
    if hasattr(data, "per_sample"):
        return WithArguments(data)
    if isinstance(data, tuple) and data and all(isinstance(part, Tensor | np.ndarray) for part in data):
        return TensorDataset(*map(torch.as_tensor, data))
    if isinstance(data, DataLoader):
        raise ConfigurationError(f"{what} is a DataLoader; pass its .dataset: `fit` draws an order of its own.")
    if isinstance(data, IterableDataset) or not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        raise ConfigurationError(
            f"{what} is a {type(data).__name__}; it needs __len__ and __getitem__, to be resumable."
        )
    if len(data) == 0:
        raise InputError(f"{what} has no samples.")
    return data


def _as_is(batch: Any) -> Any:
    return batch  # __getitems__ has collated it
