"""What tables say about where their rows are from, and whether two of them can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from axiograd.errors import ConfigurationError, StorageError
from axiograd.scale.folder import parts_of
from axiograd.scale.sources import opened
from axiograd.scale.table import provenance_of

#: What makes numbers comparable, and what one compares for.
_SAME, _NAMED = ("method", "baseline", "target", "summaries"), ("preprocessing", "data", "model", "versions")


def origin_of(path: str | Path) -> tuple[dict[str, Any], str]:
    """What a table's parts say about themselves, and a sentence if some of its rows are missing."""
    parts = parts_of(Path(path))
    files = [opened(part) for part in parts]
    told = [provenance_of(file.schema_arrow, part) for file, part in zip(files, parts, strict=True)]
    for other, part in zip(told, parts, strict=True):
        if different := [key for key in (*_SAME, "model") if other.get(key) != told[0].get(key)]:
            raise StorageError(f"{part} and {parts[0].name} are from different runs: their {different[0]} differs.")
    here, whole = sum(file.metadata.num_rows for file in files), told[0].get("rows")
    of_one_run = Path(path).is_dir() and all(one.get("data") == told[0].get("data") for one in told)
    short = of_one_run and isinstance(whole, int) and here < whole
    return told[0], f"{path} has {here:,} of its {whole:,} rows: the run has not ended" if short else ""


def check_alike(told: Sequence[dict[str, Any]], paths: Sequence[str | Path]) -> tuple[str, ...]:
    """Tables of different methods cannot be compared; other differences are what one compares for, and are named."""
    for key in _SAME:
        a, b = (each.get(key) for each in told)
        if a != b:
            raise ConfigurationError(
                f"{paths[0]} and {paths[1]} differ in {key} ({a} and {b}): make both in the same way."
            )
    return tuple(
        f"{key}: {told[0].get(key)} → {told[1].get(key)}" for key in _NAMED if told[0].get(key) != told[1].get(key)
    )
