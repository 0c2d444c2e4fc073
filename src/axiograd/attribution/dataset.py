"""Attributions of a whole data set, streamed to disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

import torch

from axiograd._calls import read_call
from axiograd._io import digest, model_settings, progress_bar, require_same_settings, safetensors, settings_of
from axiograd._state import module_of
from axiograd._typing import Target
from axiograd._version import __version__
from axiograd.attribution._batches import Split, cheap_to_read, check_order, numbered, split_batch, to_device
from axiograd.attribution.attribution_dataset import AttributionDataset
from axiograd.attribution.base import Attribution
from axiograd.attribution.expected_gradients import ExpectedGradients
from axiograd.attribution.references import _Loader
from axiograd.attribution.rows import Rows, rows_of
from axiograd.attribution.store import Index, Store
from axiograd.errors import ConfigurationError, InputError, StorageError


def attribute_dataset(
    method: Attribution,
    loader: Iterable[Any],
    *,
    out: str | os.PathLike[str],
    target: Target | Literal["label", "predicted"] = "label",
    dtype: torch.dtype | None = None,
    baselines: Any = None,
    additional_forward_args: Any = None,
    split: Split = split_batch,
    shard_bytes: int = 2**26,
    progress: bool = True,
) -> AttributionDataset:
    """Attribute every batch of a loader into safetensors shards; after an interruption the same call resumes.

    Targets are the batches' labels, each sample's largest output ("predicted"), or what `attribute` takes. Generators
    that the method holds are seeded anew for each batch, from their state at the start, so that a resumed run equals
    an uninterrupted one. At most about two shards are in memory; the process may be killed at any time. What is
    stored is compared with the loader's batches: all that are in memory, else the first, middle and last of a shard.

    >>> import tempfile, axiograd
    >>> method = axiograd.Gradient(lambda x: x @ torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stored = attribute_dataset(method, [torch.eye(2)], out=folder, target="predicted", progress=False)
    ...     stored[:]["attributions"], stored[:]["target"]
    (tensor([[2., 4.], [2., 4.]]), tensor([1, 1]))
    """
    safetensors()
    check_order(loader)
    if isinstance(method, ExpectedGradients) and isinstance(method.references, _Loader):
        raise ConfigurationError(
            "references from a loader depend on how often it was asked, so a run could not be resumed: give "
            "ExpectedGradients the loader's data set, or a tensor."
        )
    if shard_bytes < 1:
        raise ConfigurationError(f"shard_bytes={shard_bytes}: expected at least 1.")
    settings = {"target": target, "dtype": dtype, "baselines": baselines, "additional": additional_forward_args}
    store = Store(out)
    run = _Run(method, loader, target, dtype, baselines, additional_forward_args, split, shard_bytes, store)
    shown = progress_bar("attributions", shown=progress, extra="storage")
    with store.writing(), _own_seeds(method), shown as update:
        run.go(settings, update)
    return AttributionDataset(out, verify=False)


@dataclass
class _Run:
    method: Attribution
    loader: Iterable[Any]
    target: Any
    dtype: torch.dtype | None
    baselines: Any
    additional: Any
    split: Split
    shard_bytes: int
    store: Store
    pending: list[Rows] = field(default_factory=list)

    def go(self, settings: dict[str, Any], update: Any) -> None:
        found = self.store.read()
        finished = [s for s in found.shards if not self.store.missing(s)] if found else []
        done = {s.first_batch + i for s in finished for i in range(s.batches)}
        looked_at = (
            done
            if cheap_to_read(self.loader)
            else {s.first_batch + i for s in finished for i in (0, s.batches // 2, s.batches - 1)}
        )
        stream = numbered(self.loader, lambda i: i == 0 or i not in done or i in looked_at)
        first = next(stream, None)
        if first is None:
            raise InputError("the loader is empty: there is nothing to attribute.")
        index = self._begin(found, self._settings(settings, first[1]), first[1])
        for shard in finished:
            self.store.check(shard)
        update(advance=len(done), total=_size(self.loader))
        # Shards that were deleted are made again with the batches that they had.
        planned = {s.first_batch: s.batches for s in index.shards if s.first_batch not in done}
        known = {s.first_batch + i: text for s in index.shards for i, text in enumerate(s.data)}
        stored, last = index.batches, -1
        for last, batch in chain([first], stream):
            data = _digest(batch)
            if last in known and known[last] != data:
                raise self._other_data(f"batch {last} is a different one there")
            if index.complete and last >= stored:
                raise self._other_data(f"it has {stored} batches there, and more here")
            if last not in done:
                index = self._add(index, last, batch, data, planned)
                update(advance=1)
        if last + 1 < stored and max(done, default=-1) > last:
            raise self._other_data(f"it has {stored} batches there, and {last + 1} here")
        if self.pending:
            index = self._flush(index)
        if not index.complete:
            self.store.write_index(replace(index, complete=True))

    def _other_data(self, what: str) -> StorageError:
        return StorageError(
            f"{self.store.folder} belongs to another data set: {what}. Nothing was overwritten. Choose another folder, "
            "or delete that one."
        )

    def _settings(self, settings: dict[str, Any], batch: Any) -> dict[str, Any]:
        own = {k: v for k, v in vars(self.method).items() if k != "model" and not k.startswith("_")}
        states = {name: digest(generator.get_state()) for name, generator in _generators(self.method).items()}
        if isinstance(self.method, ExpectedGradients):
            own["references"] = self.method.references.settings()
        module = module_of(self.method.model)
        return {
            "axiograd": __version__,
            "method": {"name": type(self.method).__name__} | settings_of(own),
            "generators": {name: state for name, state in states.items() if not name.startswith("_")},
            "model": settings_of(self.method.model) if module is None else model_settings(module),
            **settings_of(settings),
            "batches": _size(self.loader),
            "first batch": _digest(batch),
        }

    def _begin(self, found: Index | None, run: dict[str, Any], batch: Any) -> Index:
        if found is not None:
            require_same_settings(self.store.folder, found.run, run, "Choose another folder, or delete that one.")
            return found
        arguments = read_call(self.split(batch)[0], self.additional)
        kind = "tensor" if arguments.single else "tuple" if isinstance(arguments.slots[0], int) else "dict"
        structure = {"kind": kind, "slots": list(arguments.slots), "n_inputs": arguments.n_inputs}
        index = Index(run, structure, _start_seed(self.method))
        self.store.write_index(index)
        return index

    def _add(self, index: Index, number: int, batch: Any, data: str, planned: dict[int, int]) -> Index:
        module = module_of(self.method.model)
        parameter = next(module.parameters(), None) if module is not None else None
        inputs, label = to_device(self.split(batch), None if parameter is None else parameter.device)
        _seed(self.method, index.seed, number)
        call = {"baselines": self.baselines, "additional_forward_args": self.additional}
        tensors = rows_of(self.method, inputs, label, self.target, self.dtype, call)
        self.pending.append(Rows(number, tensors, data))
        first = self.pending[0].number
        full = sum(rows.nbytes for rows in self.pending) >= self.shard_bytes
        if len(self.pending) == planned[first] if first in planned else full:
            return self._flush(index)
        return index

    def _flush(self, index: Index) -> Index:
        first, n = self.pending[0].number, len(self.pending)
        names = {s.first_batch: s.file for s in index.shards}
        name = names.get(first, f"shard-{len(index.shards):05d}.safetensors")
        kinds = {tuple((k, t.dtype, t.shape[1:]) for k, t in rows.tensors.items()) for rows in self.pending}
        if len(kinds) > 1:
            raise InputError(
                f"batches {first} to {first + n - 1} differ in what they hold or in its shape: "
                f"{'; '.join(sorted(map(str, kinds)))}. Make all samples of one shape, and give all of "
                "them labels or none."
            )
        whole = {k: torch.cat([rows.tensors[k] for rows in self.pending]) for k in self.pending[0].tensors}
        data = tuple(rows.data for rows in self.pending)
        self.pending.clear()
        index = index.with_shard(self.store.write_shard(name, whole, first, data))
        self.store.write_index(index)
        return index


def _size(loader: Iterable[Any]) -> int | None:
    """Number of batches, if the loader knows."""
    try:
        return len(loader) if isinstance(loader, Sized) else None
    except TypeError:  # a DataLoader over a data set without length has a __len__ that fails
        return None


def _generators(method: Attribution) -> dict[str, torch.Generator]:
    return {name: value for name, value in vars(method).items() if isinstance(value, torch.Generator)}


def _start_seed(method: Attribution) -> int:
    """From the generators that the user gave, if any; otherwise a new one, which the index keeps."""
    given = [g.get_state() for name, g in _generators(method).items() if not name.startswith("_")]
    return int(digest(*given)[:15], 16) if given else int(torch.empty((), dtype=torch.int64).random_())


def _seed(method: Attribution, seed: int, number: int) -> None:
    for name, generator in _generators(method).items():
        words = hashlib.sha256(f"{seed} {number} {name}".encode()).digest()
        generator.manual_seed(int.from_bytes(words[:7], "big"))


@contextmanager
def _own_seeds(method: Attribution) -> Iterator[None]:
    states = {name: generator.get_state() for name, generator in _generators(method).items()}
    try:
        yield
    finally:
        for name, generator in _generators(method).items():
            generator.set_state(states[name])


def _digest(batch: Any) -> str:
    return digest(json.dumps(settings_of(batch)))
