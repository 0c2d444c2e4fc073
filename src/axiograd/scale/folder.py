"""A folder of numbered Parquet parts: each appears whole or not at all, and a run resumes from those that are there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from axiograd._io import alone, replacing, require_same_settings, write_atomically, writing
from axiograd.errors import DataMissingError, StorageError
from axiograd.scale.table import pyarrow

#: Beside the parts; readers of Parquet folders pass over names that begin with an underscore or a dot.
RUN, STATISTICS = "_run.json", "_statistics.json"
_PART = re.compile(r"part-(\d{6})\.parquet")
_KEPT = "The parts that are written are whole and stay readable, and the same command resumes from them"


@dataclass(frozen=True)
class Folder:
    """Parts by number; workers on several machines write into one that all of them see."""

    path: Path

    def part(self, number: int) -> Path:
        """Where a part is, or will be."""
        return self.path / f"part-{number:06d}.parquet"

    def written(self) -> set[int]:
        """The numbers of the parts that are there."""
        names = (_PART.fullmatch(path.name) for path in self.path.glob("part-*.parquet"))
        return {int(name[1]) for name in names if name}

    def begun(self, number: int) -> int:
        """How often a part was begun in this run, with this time: a byte for each, in a file that all workers see."""
        marks = self.part(number).with_name(f".{self.part(number).name}.begun")
        with writing(marks, _KEPT), marks.open("ab") as file:
            file.write(b".")
        return marks.stat().st_size

    def write(self, number: int, table: Any) -> None:
        """Write one part beside its place and rename it, so that a killed worker leaves no half of one."""
        pa = pyarrow()
        target = self.part(number)
        try:
            with writing(target, _KEPT), replacing(target) as building:
                # Numbers of which no two are equal only grow by a dictionary.
                words = [field.name for field in table.schema if pa.types.is_string(field.type)]
                pa.parquet.write_table(table, building, compression="zstd", use_dictionary=words)
        except pa.ArrowException as error:  # some of the system's errors come in the library's clothes
            raise StorageError(f"Cannot write {str(target)!r}: {error}. {_KEPT}.") from error

    @contextmanager
    def open(self, run: Mapping[str, Any]) -> Iterator[None]:
        """Refuse a folder of another run, keep others from writing there, and remove what killed workers have left."""
        with alone(self.path):
            known = self.path / RUN
            if known.exists():
                try:
                    found = json.loads(known.read_text(encoding="utf-8"))
                except ValueError as error:
                    raise StorageError(f"{known} is damaged ({error}): delete the folder and run again.") from error
                require_same_settings(self.path, found, run, "Choose another folder, or delete that one.")
            elif self.written():
                raise StorageError(f"{self.path} has parts but no {RUN}: choose another, empty folder.")
            else:
                write_atomically(known, json.dumps(run, indent=1).encode())
            self._tidy()
            yield
            self._tidy()

    def _tidy(self) -> None:
        for leftover in self.path.glob(".part-*.parquet.*"):
            leftover.unlink(missing_ok=True)


def parts_of(path: Path) -> list[Path]:
    """The Parquet files of a folder in their order, or the one file."""
    found = sorted(path.glob("*.parquet")) if path.is_dir() else [path] if path.is_file() else []
    if not found:
        raise DataMissingError(f"there are no Parquet files in {path}, or it does not exist.")
    return found
