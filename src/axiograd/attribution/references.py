"""Reference samples to draw from: a tensor, a data set, or a loader."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from axiograd._io import settings_of
from axiograd.errors import BaselineError


class References(ABC):
    """Draws references without replacement; when all have been drawn, a fresh round begins."""

    @classmethod
    def ensure(cls, source: Any) -> References:
        """Read a tensor, a tuple of tensors (one per input), a data set with a length, or a loader."""
        if isinstance(source, References):
            return source
        if isinstance(source, Tensor):
            return _Tensors((source,))
        if isinstance(source, tuple | list) and source and all(isinstance(s, Tensor) for s in source):
            return _Tensors(tuple(source))
        if isinstance(source, Dataset) and hasattr(source, "__len__"):
            return _Dataset(source)
        if isinstance(source, DataLoader) or (isinstance(source, Iterable) and not isinstance(source, str | Mapping)):
            return _Loader(source)
        raise BaselineError(
            f"references of type {type(source).__name__}: expected a tensor, a tuple of them, a data set or a loader."
        )

    @abstractmethod
    def draw(self, n: int, n_inputs: int, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        """``n`` references for each of ``n_inputs`` input tensors."""

    def settings(self) -> Any:
        """What two runs are compared by: JSON that differs where the references do."""
        return settings_of(self)


def _order(size: int, n: int, generator: torch.Generator | None) -> Tensor:
    rounds = [torch.randperm(size, generator=generator) for _ in range(-(-n // size))]
    return (rounds[0] if len(rounds) == 1 else torch.cat(rounds))[:n]


class _Tensors(References):
    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        sizes = {len(t) if t.dim() else 0 for t in tensors}
        if len(sizes) != 1 or 0 in sizes:
            raise BaselineError(f"references with {sorted(sizes)} samples: expected the same number, at least one.")
        self.tensors = tensors

    def settings(self) -> Any:
        return settings_of(self.tensors)

    def draw(self, n: int, n_inputs: int, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        if len(self.tensors) != n_inputs:
            raise BaselineError(
                f"references for {len(self.tensors)} inputs, but the model has {n_inputs}: give one tensor for each."
            )
        order = _order(len(self.tensors[0]), n, generator)
        return tuple(t[order.to(t.device)] for t in self.tensors)


class _Dataset(References):
    def __init__(self, dataset: Any) -> None:
        if len(dataset) == 0:
            raise BaselineError("the data set of references is empty.")
        self.dataset = dataset

    def settings(self) -> Any:
        n = len(self.dataset)
        return {"samples": n, "first and last": settings_of([self.dataset[0], self.dataset[n - 1]])}

    def draw(self, n: int, n_inputs: int, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        order = _order(len(self.dataset), n, generator)
        return _first(default_collate([self.dataset[int(i)] for i in order]), n_inputs)


class _Loader(References):
    """Takes samples in the loader's own order: its sampler decides about replacement and repeatability."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self.loader = loader
        self.iterator: Iterator[Any] = iter(())
        self.left: tuple[Tensor, ...] | None = None

    def draw(self, n: int, n_inputs: int, generator: torch.Generator | None) -> tuple[Tensor, ...]:  # noqa: ARG002
        while self.left is None or len(self.left[0]) < n:
            batch = _first(self._next(), n_inputs)
            self.left = batch if self.left is None else tuple(map(torch.cat, zip(self.left, batch, strict=True)))
        drawn, self.left = tuple(t[:n] for t in self.left), tuple(t[n:] for t in self.left)
        return drawn

    def _next(self) -> Any:
        for _ in range(2):
            for batch in self.iterator:
                return batch
            self.iterator = iter(self.loader)
        raise BaselineError("the loader of references is empty.")


def _first(batch: Any, n_inputs: int) -> tuple[Tensor, ...]:
    """The inputs in a batch: labels and whatever else follows them are left out."""
    parts = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    if len(parts) < n_inputs or not all(isinstance(p, Tensor) for p in parts[:n_inputs]):
        raise BaselineError(f"a batch of references with {len(parts)} parts for {n_inputs} input tensors.")
    return parts[:n_inputs]
