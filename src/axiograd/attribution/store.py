"""A folder of safetensors shards and their index, written so that a killed process loses nothing that is finished."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from axiograd._io import alone, file_sha256, replacing, safetensors, writing
from axiograd.errors import StorageError

_FORMAT = 1
_INDEX = "index.json"
#: Room that must stay free beside a shard: the index and a little air.
_MARGIN = 2**20


@dataclass(frozen=True)
class Shard:
    """One finished file: which batches are in it, how many rows, how to know that it is intact, and whose it is."""

    file: str
    first_batch: int
    batches: int
    rows: int
    size: int
    sha256: str
    #: A digest of each batch that it was made from.
    data: tuple[str, ...] = ()


@dataclass(frozen=True)
class Index:
    """What a folder holds: the run's fingerprint, the structure of its inputs, and its finished shards in order."""

    run: Mapping[str, Any]
    structure: Mapping[str, Any]
    seed: int
    shards: tuple[Shard, ...] = ()
    complete: bool = False
    format: int = field(default=_FORMAT)

    @property
    def rows(self) -> int:
        """Samples in all finished shards."""
        return sum(shard.rows for shard in self.shards)

    @property
    def batches(self) -> int:
        """Batches in all finished shards."""
        return sum(shard.batches for shard in self.shards)

    def with_shard(self, shard: Shard) -> Index:
        """The index with one shard more, or with a newer version of one that it has."""
        others = [s for s in self.shards if s.first_batch != shard.first_batch]
        return replace(self, shards=tuple(sorted([*others, shard], key=lambda s: s.first_batch)))


class Store:
    """Reads and writes a folder; every file appears whole or not at all."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def read(self) -> Index | None:
        """The folder's index; None if there is none yet."""
        path = self.folder / _INDEX
        if not path.exists():
            strays = sorted(self.folder.glob("shard-*.safetensors")) if self.folder.is_dir() else []
            if strays:
                raise StorageError(f"{self.folder} has {strays[0].name} but no {_INDEX}: choose another, empty folder.")
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != _FORMAT:
                raise StorageError(
                    f"{path} has format {content['format']}, this version reads {_FORMAT}: choose another folder."
                )
            shards = (Shard(**shard | {"data": tuple(shard.get("data", ()))}) for shard in content["shards"])
            return Index(**content | {"shards": tuple(shards)})
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(
                f"{path} is damaged ({error}): restore it from a copy, or delete the folder and run again."
            ) from error

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Create the folder if need be, and keep other processes from writing into it."""
        with alone(self.folder):
            for leftover in self.folder.glob("*.tmp"):
                leftover.unlink()
            yield

    def write_index(self, index: Index) -> None:
        """Replace the index."""
        text = json.dumps(asdict(index), indent=1)
        with self._replacing(_INDEX, len(text)) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def write_shard(self, name: str, tensors: Mapping[str, Tensor], first_batch: int, data: tuple[str, ...]) -> Shard:
        """Write one shard, and only then describe it for the index; `data` has a digest of each of its batches."""
        save_file = safetensors().torch.save_file
        rows = len(next(iter(tensors.values())))
        with self._replacing(name, sum(t.nbytes for t in tensors.values())) as temporary:
            save_file({k: t.contiguous() for k, t in tensors.items()}, temporary)
            size, sha256 = temporary.stat().st_size, file_sha256(temporary)
        return Shard(name, first_batch, len(data), rows, size, sha256, data)

    def missing(self, shard: Shard) -> bool:
        """Whether the file is gone."""
        return not (self.folder / shard.file).exists()

    def check(self, shard: Shard, *, content: bool = True) -> Path:
        """The shard's path, after a look at its size and (``content``) at every byte."""
        path = self.folder / shard.file
        if self.missing(shard):
            raise StorageError(f"{path} is missing: run attribute_dataset again, which recomputes it and nothing else.")
        size = path.stat().st_size
        if size != shard.size or (content and file_sha256(path) != shard.sha256):
            what = f"{size} bytes instead of {shard.size}" if size != shard.size else "its checksum differs"
            raise StorageError(
                f"{path} is damaged ({what}): delete this file and run attribute_dataset again, which recomputes it "
                "and nothing else."
            )
        return path

    @contextmanager
    def _replacing(self, name: str, size: int) -> Iterator[Path]:
        """A temporary path whose file takes the name's place once it is safe on the disk."""
        kept = "Finished shards are kept."
        free = shutil.disk_usage(self.folder).free
        if free < size + _MARGIN:
            raise StorageError(
                f"{self.folder} has {free / 2**20:.0f} MiB free, {name} needs {size / 2**20:.0f}: make room and run "
                f"again. {kept}"
            )
        try:
            with (
                writing(self.folder / name, kept),
                replacing(self.folder / name, self.folder / f"{name}.tmp") as temporary,
            ):
                yield temporary
        except safetensors().SafetensorError as error:  # the library's own word for what the system said
            raise StorageError(f"cannot write {self.folder / name}: {error}. Fix that and run again. {kept}") from error
