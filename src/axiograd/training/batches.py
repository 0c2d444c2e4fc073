"""From a data set to batches: order, each rank's part and randomness are functions of (seed, epoch, index)."""

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset, default_collate
from torch.utils.data._utils.pin_memory import pin_memory

from axiograd.errors import ConfigurationError, InputError
from axiograd.training.seeds import generator, seed_everything


@dataclass(frozen=True)
class Share:
    """The samples that one rank computes at once: its share of a batch, or of one of the parts of a batch.

    The mean over the batch of all N samples is the mean over ranks of the sum over parts of `weight`·(mean over the n
    samples of the share), with weight = n·ranks/N. A rank that has no sample left gets one with weight 0.
    """

    epoch: int
    indices: tuple[int, ...]
    weight: float = 1.0
    #: Which part of the batch it is, how much of the batch that part is on all ranks, and whether it is the last.
    number: int = 0
    of_batch: float = 1.0
    last: bool = True
    #: N
    total: int = 0


@dataclass(frozen=True)
class Batch:
    """Inputs, target, arguments for the prior (masks, boxes …), and which samples they are.

    A data set gives `(inputs, target)`, `(inputs, target, {name: argument})`, or
    `{"inputs": …, "target": …, name: argument}`; inputs are a tensor, a tuple, or a mapping.

    >>> batch = Batch.of((torch.zeros(2, 3), torch.tensor([0, 1]), {"mask": torch.ones(2, 3)}), [7, 4])
    >>> len(batch), list(batch.arguments), batch.indices
    (2, ['mask'], (7, 4))
    """

    inputs: Any
    target: Any
    arguments: Mapping[str, Any] = field(default_factory=dict)
    indices: tuple[int, ...] = ()
    share: Share = Share(0, ())

    @classmethod
    def of(cls, collated: Any, indices: Sequence[int]) -> "Batch":
        """Read one of the three forms of a batch."""
        if isinstance(collated, Mapping) and {"inputs", "target"} <= collated.keys():
            arguments = {k: v for k, v in collated.items() if k not in {"inputs", "target"}}
            return cls(collated["inputs"], collated["target"], arguments, tuple(indices))
        if isinstance(collated, list | tuple) and len(collated) in {2, 3}:
            inputs, target, *rest = collated
            if not rest or isinstance(rest[0], Mapping):
                inputs = tuple(inputs) if isinstance(inputs, list) else inputs
                return cls(inputs, target, rest[0] if rest else {}, tuple(indices))
        raise InputError(
            "a sample must be (inputs, target), (inputs, target, {name: prior argument}) or a mapping with "
            f"'inputs' and 'target'; the data set gave {_describe(collated)}."
        )

    def map(self, change: Callable[[Any], Any]) -> "Batch":
        """The batch with its inputs, target and arguments changed."""
        changed = {"inputs": change(self.inputs), "target": change(self.target)}
        return replace(self, **changed, arguments=change(dict(self.arguments)))

    def cast(self, change: Callable[[Any], Any]) -> "Batch":
        """The batch with its inputs changed."""
        return replace(self, inputs=change(self.inputs))

    def pin_memory(self) -> "Batch":
        """Called by torch's DataLoader."""
        return self.map(pin_memory)

    def __len__(self) -> int:
        return len(self.indices)


class Order(Sampler[Share]):
    """Which samples make each global batch of an epoch, and which of them are this rank's.

    Every rank cuts its share from the same permutation, so that the shares of all ranks together are the batch that
    one process would have seen, to the last sample. With `parts`, a batch is computed in so many pieces.

    >>> one, two = Order(5, 4), [Order(5, 4, rank=r, world_size=2) for r in range(2)]
    >>> [(g.indices == a.indices + b.indices, a.weight, b.weight) for a, b, g in zip(*two, one)]
    [(True, 1.0, 1.0), (False, 0.0, 2.0)]
    """

    def __init__(
        self,
        n: int,
        batch_size: int,
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        parts: int = 1,
        shuffle: bool = True,
    ) -> None:
        if batch_size < world_size * parts:
            raise ConfigurationError(
                f"batch_size {batch_size} is for all processes together, and too small for {world_size} of them with "
                f"accumulate = {parts}."
            )
        if n < world_size:
            raise InputError(
                f"the data set has {n} samples; there must be at least one for each process ({world_size})."
            )
        self.n, self.batch_size, self.seed, self.shuffle = n, batch_size, seed, shuffle
        self.rank, self.world_size, self.parts = rank, world_size, parts
        self.epoch = self.start = 0

    def at(self, epoch: int, start: int = 0) -> None:
        """Go to a batch of an epoch; the next iteration starts there."""
        self.epoch, self.start = epoch, start

    def __len__(self) -> int:
        return (self.n + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[Share]:
        if self.shuffle:
            order = torch.randperm(self.n, generator=generator(self.seed, "order", self.epoch)).tolist()
        else:
            order = list(range(self.n))
        for step in range(self.start, len(self)):
            yield from self._shares(order[step * self.batch_size : (step + 1) * self.batch_size])

    def _shares(self, batch: list[int]) -> Iterator[Share]:
        parts = [part for number in range(self.parts) if (part := _piece(batch, number, self.parts))]
        for number, part in enumerate(parts):
            mine = _piece(part, self.rank, self.world_size)
            weight = len(mine) * self.world_size / len(batch)
            last = number == len(parts) - 1
            yield Share(self.epoch, tuple(mine or part[:1]), weight, number, len(part) / len(batch), last, len(batch))


def _piece(items: list[int], number: int, of: int) -> list[int]:
    return items[number * len(items) // of : (number + 1) * len(items) // of]


class WithArguments(Dataset[Any]):
    """A `TensorData` whose columns (masks, shortcuts, boxes) become arguments of the prior, named as the prior does.

    >>> from axiograd.datasets import TensorData
    >>> data = TensorData(torch.zeros(3, 2), torch.arange(3), name="three", shortcuts=torch.ones(3, 2))
    >>> WithArguments(data, mask="shortcuts")[1]
    (tensor([0., 0.]), tensor(1), {'mask': tensor([1., 1.])})
    """

    def __init__(self, data: Any, **columns: str) -> None:
        self.columns: dict[str, Tensor] = data.per_sample()
        self.names = columns
        missing = [column for column in columns.values() if column not in self.columns]
        if missing:
            raise ConfigurationError(f"{data!r} has no {', '.join(missing)}; it has {', '.join(self.columns)}.")

    def __len__(self) -> int:
        return len(self.columns["inputs"])

    def __getitem__(self, index: int) -> Any:
        return self.rows(index)

    def rows(self, which: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Inputs, target and arguments of one row or of many."""
        arguments = {name: self.columns[column][which] for name, column in self.names.items()}
        return self.columns["inputs"][which], self.columns["targets"][which], arguments


class _Drawn(Dataset[Batch]):
    """The user's data set, read a batch at a time, each sample with its own randomness."""

    def __init__(self, data: Any, seed: int, collate: Callable[[list[Any]], Any]) -> None:
        self.data, self.seed, self.collate = data, seed, collate

    def __getitems__(self, share: Share) -> Batch:  # torch's fetcher prefers it to __getitem__
        if hasattr(self.data, "set_epoch"):
            self.data.set_epoch(share.epoch)
        return replace(Batch.of(self._collated(share), share.indices), share=share)

    def _collated(self, share: Share) -> Any:
        indices = list(share.indices)
        if self.collate is default_collate:
            if hasattr(self.data, "collated"):  # it has no randomness of its own, and reads many at once faster
                return self.data.collated(indices)
            if isinstance(self.data, TensorDataset):
                return [tensor[indices] for tensor in self.data.tensors]
            if isinstance(self.data, WithArguments):
                return self.data.rows(indices)
        return self.collate([self._draw(share.epoch, index) for index in indices])

    def _draw(self, epoch: int, index: int) -> Any:
        seed_everything(self.seed, "sample", epoch, index)
        return self.data[index]


def loader(
    data: Any,
    order: Order,
    *,
    num_workers: int = 0,
    collate: Callable[[list[Any]], Any] | None = None,
    pinned: bool = False,
) -> DataLoader[Batch]:
    """Batches of the data set in the given order."""
    drawn = _Drawn(data, order.seed, collate or default_collate)
    return DataLoader(
        drawn,
        batch_sampler=order,  # type: ignore[arg-type]  # a share is a list of indices that knows its place
        num_workers=num_workers,
        worker_init_fn=_ignore_interrupts,
        collate_fn=_as_is,
        pin_memory=pinned,
        persistent_workers=num_workers > 0,
        generator=torch.Generator(),
    )


def ensure_dataset(data: Any, what: str) -> Any:
    """A map-style data set; a tuple of tensors becomes one."""
    if hasattr(data, "per_sample"):
        return WithArguments(data)
    if isinstance(data, tuple) and data and all(isinstance(part, Tensor | np.ndarray) for part in data):
        if any(isinstance(part, np.ndarray) for part in data):
            raise InputError(f"{what} is {_describe(data)}; make tensors of NumPy's arrays with torch.from_numpy.")
        sizes = [len(part) if part.dim() else 0 for part in data]
        if len(set(sizes)) > 1:
            raise InputError(
                f"{what} has tensors of {', '.join(map(str, sizes))} samples; all must have the same number."
            )
        return TensorDataset(*data)
    if isinstance(data, DataLoader):
        raise ConfigurationError(f"{what} is a DataLoader; pass its .dataset: the loop draws a resumable order itself.")
    if isinstance(data, IterableDataset) or not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        raise ConfigurationError(f"{what} is {_describe(data)}; it needs __len__ and __getitem__, to be resumable.")
    return data


def _ignore_interrupts(worker: int) -> None:  # noqa: ARG001 - torch's signature
    """Ctrl-C is sent to workers too; the run needs them until it has saved."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _as_is(batch: Any) -> Any:
    return batch  # __getitems__ has collated it


def _describe(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} of ({', '.join(type(part).__name__ for part in value)})"
    return type(value).__name__
