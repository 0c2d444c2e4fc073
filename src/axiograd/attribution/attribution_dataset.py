"""Stored attributions as a data set that reads only what is asked for."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import OrderedDict
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from axiograd._io import safetensors
from axiograd.attribution.store import Index, Shard, Store
from axiograd.errors import StorageError

#: Shards that stay mapped into memory at once.
_OPEN = 16


class AttributionDataset(Dataset[dict[str, Any]]):
    """What `attribute_dataset` stored: ``attributions`` and, where there are such, ``outputs``, ``target``, ``label``.

    An index gives one sample, a slice gives a batch; only these rows are read (files are memory-mapped). A shard's
    checksum is compared when it is first opened, unless ``verify=False``.

    >>> import tempfile, axiograd
    >>> model = torch.nn.Linear(3, 2)
    >>> loader = [(torch.randn(4, 3), torch.tensor([0, 1, 1, 0])) for _ in range(5)]
    >>> folder = tempfile.TemporaryDirectory()
    >>> axiograd.attribute_dataset(axiograd.InputXGradient(model), loader, out=folder.name, progress=False)
    AttributionDataset(..., 20 samples in 1 shard, complete)
    >>> stored = axiograd.AttributionDataset(folder.name)
    >>> stored[2]["attributions"].shape, stored[2]["target"], stored[3:9]["outputs"].shape
    (torch.Size([3]), tensor(1), torch.Size([6, 2]))
    >>> folder.cleanup()
    """

    def __init__(self, folder: str | os.PathLike[str], *, verify: bool = True) -> None:
        safetensors()
        self._store = Store(folder)
        self._verify = verify
        index = self._store.read()
        if index is None:
            raise StorageError(
                f"{self._store.folder} holds no attributions: attribute_dataset(..., out=folder) makes them."
            )
        self.index: Index = index
        for shard in index.shards:
            self._store.check(shard, content=False)
        self._ends = list(accumulate(shard.rows for shard in index.shards))
        self._opened: OrderedDict[str, Any] = OrderedDict()

    @property
    def complete(self) -> bool:
        """Whether the run went to the end of its loader."""
        return self.index.complete

    def __len__(self) -> int:
        return self.index.rows

    def __getitem__(self, which: int | slice) -> dict[str, Any]:
        if isinstance(which, slice):
            start, stop, step = which.indices(len(self))
            if step != 1 or stop <= start:
                raise IndexError(f"{which}: expected a slice that is not empty and has step 1.")
            return self._read(start, stop)
        row = which + len(self) if which < 0 else which
        if not 0 <= row < len(self):
            raise IndexError(f"sample {which} of {len(self)}.")
        return {name: _first(value) for name, value in self._read(row, row + 1).items()}

    def verify(self) -> None:
        """Compare the checksum of every shard; a damaged one raises `StorageError`."""
        for shard in self.index.shards:
            self._store.check(shard)

    def __repr__(self) -> str:
        n = len(self.index.shards)
        state = "complete" if self.complete else "not complete"
        return f"AttributionDataset({self._store.folder}, {len(self)} samples in {n} shard{'s' * (n != 1)}, {state})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": OrderedDict()}  # a worker process maps the files itself

    def _read(self, start: int, stop: int) -> dict[str, Any]:
        parts: list[dict[str, Tensor]] = []
        row = start
        while row < stop:
            number = bisect_right(self._ends, row)
            shard = self.index.shards[number]
            offset = self._ends[number] - shard.rows
            end = min(stop, self._ends[number])
            file = self._open(shard)
            parts.append({name: file.get_slice(name)[row - offset : end - offset] for name in file.keys()})  # noqa: SIM118
            row = end
        whole = {name: torch.cat([p[name] for p in parts]) if len(parts) > 1 else parts[0][name] for name in parts[0]}
        return self._pack(whole)

    def _open(self, shard: Shard) -> Any:
        file = self._opened.pop(shard.file, None)
        if file is None:
            library = safetensors()
            path = self._store.check(shard, content=self._verify)
            try:
                file = library.safe_open(path, framework="pt")
            except library.SafetensorError as error:
                raise StorageError(f"{path} is damaged ({error}): delete this file and run again.") from error
        self._opened[shard.file] = file
        if len(self._opened) > _OPEN:
            self._opened.popitem(last=False)
        return file

    def _pack(self, tensors: dict[str, Tensor]) -> dict[str, Any]:
        """Attributions in the structure of the inputs, as the method gave them."""
        structure = self.index.structure
        slots = structure["slots"]
        found = {slot: tensors.pop(f"attributions.{slot}") for slot in slots}
        attributions: Any
        if structure["kind"] == "tensor":
            attributions = found[slots[0]]
        elif structure["kind"] == "tuple":
            attributions = tuple(found.get(i) for i in range(structure["n_inputs"]))
        else:
            attributions = found
        return {"attributions": attributions, **tensors}


def _first(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_first(v) for v in value)
    if isinstance(value, dict):
        return {name: _first(v) for name, v in value.items()}
    return None if value is None else value[0]
