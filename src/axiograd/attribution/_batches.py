"""Batches of a data set, numbered in an order that is the same in every run, and read as inputs and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from axiograd.errors import ConfigurationError, InputError

#: From a batch to its inputs and labels (None if it has none).
Split: TypeAlias = Callable[[Any], tuple[Any, Any]]

_LABELS = ("label", "labels", "target", "targets", "y")


def split_batch(batch: Any) -> tuple[Any, Any]:
    """Inputs and labels of a batch ``x``, ``(x,)``, ``(x, y)``, where x is anything a model takes, or a mapping.

    >>> split_batch({"pixels": torch.ones(1, 2), "label": torch.tensor([1])})
    ({'pixels': tensor([[1., 1.]])}, tensor([1]))
    """
    if isinstance(batch, Tensor):
        return batch, None
    if isinstance(batch, Mapping):
        names = [name for name in _LABELS if name in batch]
        if len(names) > 1:
            raise InputError(f"the batch has {' and '.join(names)}: say which is the label with split=.")
        named = {name: value for name, value in batch.items() if name not in names}
        return named, batch[names[0]] if names else None
    if isinstance(batch, tuple | list) and 1 <= len(batch) <= 2:  # noqa: PLR2004  # x, or x and y
        inputs = tuple(batch[0]) if isinstance(batch[0], list) else batch[0]
        return inputs, batch[1] if len(batch) == 2 else None  # noqa: PLR2004
    size = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
    raise InputError(
        f"a batch that is a {type(batch).__name__}{size}: expected x, (x, y) or a mapping. Otherwise say what is what, "
        "for example split=lambda batch: ((batch[0], batch[1]), batch[2])."
    )


def check_order(loader: Iterable[Any]) -> None:
    """A shuffled loader cannot be resumed: nobody would know which samples are left, nor whose a row is."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    for sampler in (getattr(loader, "sampler", None), getattr(batch_sampler, "sampler", None)):
        if isinstance(sampler, RandomSampler | SubsetRandomSampler | WeightedRandomSampler):
            raise ConfigurationError(
                f"the loader shuffles ({type(sampler).__name__}), so that rows could not be matched with samples nor a "
                "run resumed: make it with shuffle=False."
            )


def numbered(loader: Iterable[Any], wanted: Callable[[int], bool]) -> Iterator[tuple[int, Any]]:
    """The wanted batches and their numbers; others are not even loaded where the loader's sampler allows that."""
    if isinstance(loader, DataLoader) and _by_index(loader):
        # The loader comes first in zip: when it ends, nobody looks for a further wanted number.
        pairs = zip(_only(loader, wanted), filter(wanted, count()), strict=False)
        yield from ((i, batch) for batch, i in pairs)
        return
    yield from ((i, batch) for i, batch in enumerate(loader) if wanted(i))


def cheap_to_read(loader: Iterable[Any]) -> bool:
    """Whether all batches can be had again at no cost worth mentioning: they are in memory, or pass by anyway."""
    if not _by_index(loader):
        return True
    data = getattr(loader, "dataset", loader)
    while isinstance(data, Subset):
        data = data.dataset
    return isinstance(data, TensorDataset | list | tuple) or hasattr(data, "per_sample")


def to_device(inputs: Any, device: torch.device | None) -> Any:
    """The same structure on the device; on None, as it is."""
    return inputs if device is None else pytree.tree_map_only(Tensor, lambda t: t.to(device), inputs)


def _by_index(loader: Iterable[Any]) -> bool:
    # A subclass may do more than its parts say (move to a device, take turns with other processes): only iterate it.
    return (
        type(loader) is DataLoader
        and not isinstance(loader.dataset, IterableDataset)
        and loader.batch_sampler is not None
    )


class _Wanted(Sampler[list[int]]):
    def __init__(self, batches: Iterable[list[int]], wanted: Callable[[int], bool]) -> None:
        self.batches = batches
        self.wanted = wanted

    def __iter__(self) -> Iterator[list[int]]:
        return (batch for i, batch in enumerate(self.batches) if self.wanted(i))


def _only(loader: DataLoader[Any], wanted: Callable[[int], bool]) -> DataLoader[Any]:
    return DataLoader(
        loader.dataset,
        batch_sampler=_Wanted(loader.batch_sampler, wanted),  # type: ignore[arg-type]  # checked by the caller
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
    )
