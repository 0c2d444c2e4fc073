"""A folder of safetensors shards and their index, written so that a killed process loses nothing that is finished."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from axiograd._files import replacing
from axiograd.errors import MissingExtraError, StorageError

_FORMAT = 1
_INDEX = "index.json"
#: Room that must stay free beside a shard: the index and a little air.
_MARGIN = 2**20


@dataclass(frozen=True)
class Shard:
    """One finished file: which batches are in it, how many rows, and how to know that it is intact."""

    file: str
    first_batch: int
    batches: int
    rows: int
    size: int
    sha256: str


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
            return Index(**content | {"shards": tuple(Shard(**shard) for shard in content["shards"])})
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(
                f"{path} is damaged ({error}): restore it from a copy, or delete the folder and run again."
            ) from error

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Create the folder if need be, and keep other processes from writing into it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / ".lock").open("w")
        except OSError as error:
            raise StorageError(f"cannot write into {self.folder}: {error}. Choose another folder.") from error
        with lock:
            if not _locked(lock):
                raise StorageError(f"another process is writing into {self.folder}: wait for it, or stop it.")
            for leftover in self.folder.glob("*.tmp"):
                leftover.unlink()
            yield

    def write_index(self, index: Index) -> None:
        """Replace the index."""
        text = json.dumps(asdict(index), indent=1)
        with self._replacing(_INDEX, len(text)) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def write_shard(self, name: str, tensors: Mapping[str, Tensor], first_batch: int, batches: int) -> Shard:
        """Write one shard, and only then describe it for the index."""
        save_file = safetensors().torch.save_file
        rows = len(next(iter(tensors.values())))
        with self._replacing(name, sum(t.nbytes for t in tensors.values())) as temporary:
            save_file({k: t.contiguous() for k, t in tensors.items()}, temporary)
            size, sha256 = temporary.stat().st_size, _sha256(temporary)
        return Shard(name, first_batch, batches, rows, size, sha256)

    def missing(self, shard: Shard) -> bool:
        """Whether the file is gone."""
        return not (self.folder / shard.file).exists()

    def check(self, shard: Shard, *, content: bool = True) -> Path:
        """The shard's path, after a look at its size and (``content``) at every byte."""
        path = self.folder / shard.file
        if self.missing(shard):
            raise StorageError(f"{path} is missing: run attribute_dataset again, which recomputes it and nothing else.")
        size = path.stat().st_size
        if size != shard.size or (content and _sha256(path) != shard.sha256):
            what = f"{size} bytes instead of {shard.size}" if size != shard.size else "its checksum differs"
            raise StorageError(
                f"{path} is damaged ({what}): delete this file and run attribute_dataset again, which recomputes it "
                "and nothing else."
            )
        return path

    @contextmanager
    def _replacing(self, name: str, size: int) -> Iterator[Path]:
        """A temporary path whose file takes the name's place once it is safe on the disk."""
        try:
            free = shutil.disk_usage(self.folder).free
            if free < size + _MARGIN:
                raise StorageError(
                    f"{self.folder} has {free / 2**20:.0f} MiB free, {name} needs {size / 2**20:.0f}: make room and "
                    "run again; finished shards are kept."
                )
            with replacing(self.folder / name, self.folder / f"{name}.tmp") as temporary:
                yield temporary
        except (OSError, safetensors().SafetensorError) as error:
            raise StorageError(
                f"cannot write {self.folder / name}: {error}. Mend that and run again; finished shards are kept."
            ) from error


def safetensors() -> Any:
    """The library, or what to install."""
    try:
        import safetensors
        import safetensors.torch
    except ImportError:
        raise MissingExtraError("safetensors", "storage", "storing attributions") from None
    return safetensors


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _locked(file: Any) -> bool:
    """Lock the file until it is closed, also by a crash; where the system has no such locks, go ahead."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
