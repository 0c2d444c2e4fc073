"""Results of an experiment as JSON, piece by piece, so that an interrupted one resumes where it stopped."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from axiograd._io import replacing, require_same_settings, writing
from axiograd._version import __version__
from axiograd.errors import ConfigurationError, StorageError
from axiograd.experiments.code import commit

FORMAT = 1


@dataclass(frozen=True)
class RecordedPiece:
    """One finished part: what identifies it (with its seed), what came out, and what is needed to repeat it."""

    key: Mapping[str, Any]
    values: Mapping[str, Any]
    command: str
    versions: Mapping[str, str]


class Records:
    """A file of pieces, written atomically after each; a piece that is there is read instead of computed again.

    All pieces of a file are of one `data` and share the `settings`; a file with others is refused. The command may
    differ, as when a second run adds methods: each piece has its own. `missing` says what the last run knew to be left.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "squares.json"
    >>> records = Records(path, command="squares --to 3", data="integers", settings={"power": 2})
    >>> for n in (2, 3):
    ...     _ = records.piece(lambda n=n: {"square": n**2}, n=n, seed=0)
    >>> [piece.values["square"] for piece in read(path).find(seed=0)]
    [4, 9]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        command: str,
        data: str,
        settings: Mapping[str, Any] | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> None:
        self.path = Path(path)
        self.command = command
        self.data = data
        self.settings: dict[str, Any] = _plain(dict(settings or {}))
        self.versions = current_versions() if versions is None else dict(versions)
        self.pieces: list[RecordedPiece] = []
        self.missing = ""
        if self.path.exists():
            self._continue(read(self.path))

    def piece(self, compute: Callable[[], Mapping[str, Any]], **key: Any) -> Mapping[str, Any]:
        """The values of the piece with this key, computed and saved unless they are there."""
        stored = self.get(**key)
        return self.add(compute(), **key) if stored is None else stored

    def get(self, **key: Any) -> Mapping[str, Any] | None:
        """The values of the piece with exactly this key, or None."""
        wanted = _plain(key)
        return next((piece.values for piece in self.pieces if piece.key == wanted), None)

    def find(self, **part: Any) -> list[RecordedPiece]:
        """The pieces whose keys have these entries, in the order in which they were made."""
        wanted = _plain(part)
        return [p for p in self.pieces if all(p.key.get(name, _NOTHING) == value for name, value in wanted.items())]

    def add(self, values: Mapping[str, Any], **key: Any) -> Mapping[str, Any]:
        """Save a piece, in place of an older one with the same key."""
        new = RecordedPiece(_plain(key), _plain(values), self.command, self.versions)
        self.pieces = [piece for piece in self.pieces if piece.key != new.key] + [new]
        self.save()
        return new.values

    def merge(self, other: Records) -> None:
        """Take over the pieces of other records of the same data and settings, as they are, that are not here."""
        known = [piece.key for piece in self.pieces]
        mine = list(self.pieces)
        self._continue(other)
        self.pieces = mine + [piece for piece in other.pieces if piece.key not in known]

    def save(self) -> None:
        """Write the file, complete or not at all."""
        content = {
            "format": FORMAT,
            "data": self.data,
            "settings": self.settings,
            **({"missing": self.missing} if self.missing else {}),
            "pieces": [asdict(piece) for piece in self.pieces],
        }
        # One name for the file in the making: what a killed process has left is replaced by the next.
        building = self.path.with_name(f".{self.path.name}.tmp")
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.path, building):
                building.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def _continue(self, old: Records) -> None:
        if old.data != self.data:
            raise StorageError(f"{old.path} has results on {old.data!r}, not on {self.data!r}; choose another file.")
        advice = "Choose another place for the new results, or repeat the old settings to resume."
        require_same_settings(old.path, old.settings, self.settings, advice)
        self.pieces, self.missing = list(old.pieces), old.missing


_NOTHING = object()


def read(path: str | os.PathLike[str]) -> Records:
    """The records in a file."""
    try:
        content = json.loads(Path(path).read_bytes())
        if content["format"] != FORMAT:
            raise StorageError(f"{path}: format {content['format']}, but this version reads format {FORMAT}.")
        pieces = [RecordedPiece(p["key"], p["values"], p["command"], p["versions"]) for p in content["pieces"]]
        data, settings, missing = content["data"], dict(content["settings"]), str(content.get("missing", ""))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} does not hold the records of an experiment: {error!r}.") from error
    # Not by the constructor, which would read the file again.
    records = Records.__new__(Records)
    records.path, records.data, records.settings, records.pieces = Path(path), data, settings, pieces
    records.missing = missing
    last = pieces[-1] if pieces else RecordedPiece({}, {}, "", {})
    records.command, records.versions = last.command, dict(last.versions)
    return records


def current_versions(**further: str) -> dict[str, str]:
    """The versions that numbers depend on; pieces of a time without `commit` say which one they are "kept since"."""
    return {
        "axiograd": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
        **({"commit": made_by} if (made_by := commit()) else {}),
        **further,
    }


def provenance(records: Records) -> str:
    """Commands, data, settings and versions as a sentence or two of Markdown."""
    commands = list(dict.fromkeys(piece.command for piece in records.pieces))
    versions = list(dict.fromkeys(", ".join(f"{k} {v}" for k, v in p.versions.items()) for p in records.pieces))
    settings = "; ".join(f"{name.replace('_', ' ')}: {in_words(value)}" for name, value in records.settings.items())
    made = "; ".join(f"`{command}`" for command in commands)
    return f"Data: {records.data}. Settings: {settings or 'none'}.\n\nMade by {made}; {'; '.join(versions)}."


def in_words(value: Any) -> str:
    """A setting as it is read.

    >>> in_words({"alexnet": "adam at 0.002", "contrasts": [1.0, 0.1]})
    'alexnet (adam at 0.002), contrasts (1.0, 0.1)'
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{name} ({in_words(part)})" for name, part in value.items())
    return ", ".join(map(in_words, value)) if isinstance(value, list) else str(value)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; None is an empty cell.

    >>> print(markdown_table(["method", "accuracy"], [["X-Gradient", 88.9], ["none", None]]))
    | method | accuracy |
    |---|---|
    | X-Gradient | 88.9 |
    | none |  |
    """
    lines = [header, *rows]
    if wrong := [line for line in lines if len(line) != len(header)]:
        raise ConfigurationError(f"a table of {len(header)} columns, but a row of {len(wrong[0])}: {wrong[0]}.")
    written = [f"| {' | '.join('' if cell is None else _escape(str(cell)) for cell in line)} |" for line in lines]
    return "\n".join([written[0], "|" + "---|" * len(header), *written[1:]])


def mean_and_std(values: Sequence[float], digits: int = 1) -> str:
    """Mean ± sample standard deviation; a single value stands alone.

    >>> mean_and_std([88.0, 90.0]), mean_and_std([88.0]), mean_and_std([-0.01])
    ('89.0 ± 1.4', '88.0', '0.0')
    """
    if not values:
        return ""
    mean = f"{statistics.fmean(values):z.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")


def _plain(value: Any) -> Any:
    """As JSON gives it back, so that keys compare equal before and after a file; NaN has no JSON."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, torch.Tensor | np.generic) and value.ndim == 0:
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigurationError(f"a result of {value} cannot be recorded; the experiment diverged or divided by zero.")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ConfigurationError(
        f"{type(value).__name__} {value!r} cannot be recorded: numbers, words, lists and maps can."
    )
