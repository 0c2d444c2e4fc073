"""Attributions of a whole data set, streamed to disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from axiograd._typing import Target
from axiograd._version import __version__
from axiograd.attribution._arguments import Arguments
from axiograd.attribution._batches import Split, check_order, numbered, split_batch, to_device
from axiograd.attribution._fingerprint import describe, differences, digest
from axiograd.attribution._rows import Rows, rows_of
from axiograd.attribution.attribution_dataset import AttributionDataset
from axiograd.attribution.base import Attribution
from axiograd.attribution.expected_gradients import ExpectedGradients
from axiograd.attribution.references import _Loader
from axiograd.attribution.store import Index, Store, safetensors
from axiograd.errors import ConfigurationError, InputError, MissingExtraError, StorageError
from axiograd.homogeneity.behind import module_of


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
    """Attribute every batch of a loader into safetensors shards; after an interruption the same call goes on.

    Targets are the batches' labels, each sample's largest output ("predicted"), or what `attribute` takes. Generators
    that the method holds are seeded anew for each batch, from their state at the start, so that a resumed run equals
    an uninterrupted one. At most about two shards are in memory; the process may be killed at any time.

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
    with store.writing(), _own_seeds(method), _bar(progress) as advance:
        run.go(settings, advance)
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

    def go(self, settings: dict[str, Any], advance: Any) -> None:
        found = self.store.read()
        finished = [s for s in found.shards if not self.store.missing(s)] if found else []
        done = {i for s in finished for i in range(s.first_batch, s.first_batch + s.batches)}
        stream = numbered(self.loader, lambda i: i == 0 or i not in done)
        number, batch = next(stream, (None, None))
        if number is None:
            raise InputError("the loader is empty: there is nothing to attribute.")
        index = self._begin(found, self._describe(settings, batch), batch)
        for shard in finished:
            self.store.check(shard)
        advance(len(done), _size(self.loader))
        if index.complete and len(done) == index.batches:
            return
        # Shards that were deleted are made again with the batches that they had.
        planned = {s.first_batch: s.batches for s in index.shards if s.first_batch not in done}
        if number not in done:
            index = self._add(index, number, batch, planned)
            advance(1)
        for i, later in stream:
            index = self._add(index, i, later, planned)
            advance(1)
        if self.pending:
            index = self._flush(index)
        self.store.write_index(replace(index, complete=True))

    def _describe(self, settings: dict[str, Any], batch: Any) -> dict[str, Any]:
        own = {k: v for k, v in vars(self.method).items() if k != "model" and not k.startswith("_")}
        described = {
            "axiograd": __version__,
            "method": {"name": type(self.method).__name__} | describe(own),
            "model": describe(self.method.model),
            **describe(settings),
            "batches": _size(self.loader),
            "first batch": digest(json.dumps(describe(batch))),
        }
        return dict(json.loads(json.dumps(described)))

    def _begin(self, found: Index | None, run: dict[str, Any], batch: Any) -> Index:
        if found is not None:
            if different := differences(found.run, run):
                raise StorageError(
                    f"{self.store.folder} belongs to another run; different are {'; '.join(different)}. "
                    "Choose another folder, or delete that one."
                )
            return found
        arguments = Arguments.ensure(self.split(batch)[0], self.additional)
        kind = "tensor" if arguments.single else "tuple" if isinstance(arguments.slots[0], int) else "dict"
        structure = {"kind": kind, "slots": list(arguments.slots), "n_inputs": arguments.n_inputs}
        index = Index(run, structure, _start_seed(self.method))
        self.store.write_index(index)
        return index

    def _add(self, index: Index, number: int, batch: Any, planned: dict[int, int]) -> Index:
        module = module_of(self.method.model)
        parameter = next(module.parameters(), None) if module is not None else None
        inputs, label = to_device(self.split(batch), None if parameter is None else parameter.device)
        _seed(self.method, index.seed, number)
        call = {"baselines": self.baselines, "additional_forward_args": self.additional}
        tensors = rows_of(self.method, inputs, label, self.target, self.dtype, call)
        self.pending.append(Rows(number, tensors))
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
        self.pending.clear()
        index = index.with_shard(self.store.write_shard(name, whole, first, n))
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


@contextmanager
def _bar(progress: bool) -> Iterator[Any]:
    """``advance(n, total)`` moves a bar, or nothing."""
    if not progress:
        yield lambda *_: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        raise MissingExtraError("rich", "storage", "a progress bar (progress=True)") from None
    columns = (
        TextColumn("attributions"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("batches"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("attributions", total=None)

        def advance(n: int, total: int | None = None) -> None:
            bar.update(task, advance=n, total=total)

        yield advance
