"""A folder of numbered Parquet parts, written by one process or by Ray's workers, and what is in it on average.

The parts' names are the index: a run resumes by skipping those that are there. Each appears whole or not at all, and
whoever computes a part writes the same file, so that a killed worker loses nothing and writes nothing twice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from axiograd import errors
from axiograd._extras import optional
from axiograd._io import alone, progress_bar, replacing, require_same_settings, write_atomically, writing
from axiograd._version import __version__
from axiograd.errors import AxiogradError, ConfigurationError, InputError, StorageError
from axiograd.scale.attribute import KEY, Attribute
from axiograd.scale.sources import Source, open_parquet, reading_parquet

Engine = Literal["plain", "ray"]
#: Readers of Parquet folders pass over names that begin with an underscore.
SETTINGS = "_settings.json"
#: Rows of which at least one must be attributed before anything is written.
_TRIED = 64
_KEPT = "The parts that are written are whole and stay readable, and the same command resumes from them"


def write_attributions(
    attribute: Attribute,
    source: Source,
    out: str | Path,
    *,
    engine: Engine = "plain",
    workers: int = 1,
    limit: int | None = None,
    batch_size: int = 32,
    part_rows: int = 1024,
    progress: bool | None = None,
) -> Statistics:
    """Attribute every row of a source into a folder of Parquet parts; the same call resumes after an interruption.

    Both engines write the same rows. Ray's workers are actors of Ray Data, of one core each. It is used as it is: call
    `ray.init` before, or set ``RAY_ADDRESS``, for a cluster, all machines of which must see `out`.

    >>> import tempfile, torch
    >>> from axiograd.scale.sources import Listed
    >>> model = torch.nn.Linear(3, 2, bias=False)
    >>> source = Listed("three", ["a", "b", "c"], torch.eye(3).__getitem__)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_attributions(Attribute(model), source, folder).rows
    3
    """
    if engine not in get_args(Engine):
        raise ConfigurationError(f"engine={engine!r}: choose one of {', '.join(get_args(Engine))}.")
    if workers < 1 or batch_size < 1 or part_rows < 1:
        raise ConfigurationError(f"workers={workers}, batch_size={batch_size}, part_rows={part_rows}: at least 1 each.")
    if engine == "plain" and workers > 1:
        raise ConfigurationError(f"workers={workers}: the plain engine is one process; use engine='ray'.")
    rows = len(source) if limit is None else min(limit, len(source))
    # Rows of different batch sizes may differ in their last bits: parts are made of whole batches.
    part_rows = -(-part_rows // batch_size) * batch_size
    _try(attribute, source, rows)
    features = list(getattr(source, "features", ()))
    provenance = attribute.provenance() | {"data": source.name, "rows": rows, "features": features}
    parts = Parts(attribute, source, Path(out).absolute(), rows, part_rows, batch_size, provenance)
    with alone(parts.folder):
        parts.check_settings()
        todo = parts.missing()
        if engine == "plain":
            _plain(parts, todo, progress)
        elif todo:
            _ray(parts, todo, workers)
        if missing := parts.missing():
            raise StorageError(
                f"{parts.folder}: {len(missing)} of {len(todo)} parts were written and are not here. All machines must "
                "see this folder, under this name."
            )
        parts.remove_leftovers()
    return Statistics.of(parts.folder)


def _try(attribute: Attribute, source: Source, rows: int) -> None:
    """Attribute the first row that can be, so that what is wrong with all of them is said before the work."""
    reasons: list[str] = []
    for place in range(min(rows, _TRIED)):
        read = source.read(place, place + 1)
        reason = attribute.rows(read.inputs, read.labels, read.masks)["error"][0]
        if reason is None:
            return
        reasons.append(reason.rstrip("."))
    if not reasons:
        raise InputError(f"{source.name} has no rows: there is nothing to attribute.")
    raise InputError(
        f"{source.name}: none of the first {len(reasons)} samples can be attributed; the first one: {reasons[0]}."
    )


@dataclass(frozen=True)
class Parts:
    """What a worker needs to know to compute any part, and to write it."""

    attribute: Attribute
    source: Source
    folder: Path
    rows: int
    part_rows: int
    batch_size: int
    #: JSON that every part carries, the same from every worker.
    provenance: dict[str, Any]

    def path(self, number: int) -> Path:
        """Where a part is, or will be."""
        return self.folder / f"part-{number:06d}.parquet"

    def missing(self) -> list[int]:
        """The parts that are not there yet."""
        there = {path.name for path in self.folder.glob("part-*.parquet")}
        return [n for n in range(math.ceil(self.rows / self.part_rows)) if self.path(n).name not in there]

    def check_settings(self) -> None:
        """Refuse a folder that was written with other settings or from other rows; begin one that is empty."""
        file = self.folder / SETTINGS
        own = {name: value for name, value in self.provenance.items() if name not in {"certificate", "versions"}}
        data = self.source.settings()
        here = own | {"axiograd": __version__, "data": data, "batch": self.batch_size, "part": self.part_rows}
        if file.exists():
            found = json.loads(file.read_text(encoding="utf-8"))
            require_same_settings(self.folder, found, here, "Choose another folder, or delete that one.")
        elif any(self.folder.glob("part-*.parquet")):
            raise StorageError(f"{self.folder} has parts but no {SETTINGS}: choose another, empty folder.")
        else:
            write_atomically(file, json.dumps(here, indent=1).encode())
        self.remove_leftovers()

    def remove_leftovers(self) -> None:
        """Files that killed workers did not finish."""
        for leftover in self.folder.glob(".part-*.parquet.*"):
            leftover.unlink(missing_ok=True)

    def write(self, number: int) -> None:
        """Compute one part, and write it whole or not at all."""
        start, stop = number * self.part_rows, min((number + 1) * self.part_rows, self.rows)
        names: list[str] = []
        columns: dict[str, list[Any]] = {}
        for low in range(start, stop, self.batch_size):
            read = self.source.read(low, min(low + self.batch_size, stop))
            names += read.names
            for name, values in self.attribute.rows(read.inputs, read.labels, read.masks).items():
                columns.setdefault(name, []).extend(values)
        kept = {"row": range(start, stop), "name": names}
        table = self.attribute.table(kept, columns, self.provenance)
        target = self.path(number)
        # Numbers of which no two are equal only grow by a dictionary.
        words = [field.name for field in table.schema if str(field.type) == "string"]
        with writing(target, _KEPT), replacing(target) as building:
            pq = optional("pyarrow.parquet", "scale", "Parquet")
            pq.write_table(table, building, compression="zstd", use_dictionary=words)


def _plain(parts: Parts, todo: Sequence[int], progress: bool | None) -> None:
    with progress_bar("attributions", total=parts.rows, shown=progress) as update:
        update(completed=max(0, parts.rows - len(todo) * parts.part_rows))
        for number in todo:
            parts.write(number)
            update(advance=parts.part_rows)


def _ray(parts: Parts, todo: Sequence[int], workers: int) -> None:
    ray = optional("ray", "ray", "the engine ray")
    data = optional("ray.data", "ray", "the engine ray", package="ray[data]")
    jobs = data.from_items([{"part": number} for number in todo], override_num_blocks=len(todo))
    done = jobs.map_batches(
        _RayWorker,
        fn_constructor_args=[[ray.put(parts)]],
        batch_size=1,
        compute=data.ActorPoolStrategy(min_size=1, max_size=workers),
        num_cpus=1,
    )
    for row in done.iter_rows():
        if row["error"]:
            raise getattr(errors, row["kind"], AxiogradError)(row["error"])


class _RayWorker:
    """An actor of Ray Data: it holds the model, and writes the parts that it is given."""

    def __init__(self, parts: list[Any]) -> None:
        # In a list, so that the reference arrives and not a copy of what it refers to.
        self.parts: Parts = optional("ray", "ray", "the engine ray").get(parts[0])

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        there, here = (each["model"] for each in (self.parts.provenance, self.parts.attribute.provenance()))
        advice = "Workers make the model anew: seed what is random in the function, or load weights from a file."
        try:
            require_same_settings(self.parts.folder, there, here, advice)
            self.parts.write(int(batch["part"][0]))
        except AxiogradError as error:  # Ray would lose what it says in the traces of all processes on the way
            return {"kind": [type(error).__name__], "error": [str(error)]}
        return {"kind": [""], "error": [""]}


@dataclass(frozen=True)
class Statistics:
    """Over the rows of a table: how many there are, how well they add up, and means over all rows and per class."""

    rows: int
    #: Rows that could not be read or attributed.
    errors: int
    #: Rows with a label, and the share of them whose prediction is right; None without labels.
    labelled: int
    accuracy: float | None
    #: Root mean square of Σ A − (F(x) − F(0)), relative to that of F(x) − F(0); None without rows.
    completeness: float | None
    #: Rows, and mean and standard error (`se`, None for one row) of each column.
    all: dict[str, Any]
    #: The same for each class that was attributed.
    classes: dict[int, dict[str, Any]]

    @classmethod
    def of(cls, path: str | Path) -> Statistics:
        """Of a folder or file that `axiograd attribute` wrote."""
        optional("pandas", "scale", "statistics of a table")
        table = open_parquet(Path(path))
        shares = [name for name in table.schema.names if name.startswith(("share_", "energy_", "area_"))]
        numbers = ["gini", "score", "total", *shares]
        with reading_parquet(Path(path)):
            read = table.to_table(columns=[*numbers, "error", "target", "label", "prediction", "difference"])
        rows = read.to_pandas()
        good = rows[rows["error"].isna()].astype(dict.fromkeys(numbers, "float64"))
        labelled = good[good["label"].notna()]
        gap, whole = good["total"] - good["difference"], float((good["difference"] ** 2).sum())
        return cls(
            len(rows),
            len(rows) - len(good),
            len(labelled),
            float((labelled["label"] == labelled["prediction"]).mean()) if len(labelled) else None,
            math.sqrt(float((gap**2).sum()) / whole) if whole else None,
            _means(good[numbers]),
            {int(one): _means(own) for one, own in good.groupby("target")[numbers]},
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        content = dict(vars(self))
        return {"completeness_error": content.pop("completeness"), **content}


def _means(rows: Any) -> dict[str, Any]:
    """Of a pandas table; columns without a value are left out, as JSON has no NaN."""
    found: dict[str, Any] = {"rows": len(rows)}
    for name, (count, mean, error) in rows.agg(["count", "mean", "sem"]).items():
        if count:
            found[name] = {"rows": int(count), "mean": mean, "se": error if count > 1 else None}
    return found


def provenance_of(path: Path, table: Any) -> dict[str, Any]:
    """The provenance of a table."""
    text = (table.schema.metadata or {}).get(KEY)
    if text is None:
        raise StorageError(f"{path} was not written by `axiograd attribute`: it has no provenance.")
    content: dict[str, Any] = json.loads(text)
    return content
