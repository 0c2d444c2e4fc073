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
from typing import Any

from axiograd import errors
from axiograd._extras import optional
from axiograd._io import alone, progress_bar, replacing, require_same_settings, write_atomically, writing
from axiograd._version import __version__
from axiograd.errors import AxiogradError, ConfigurationError, InputError, StorageError
from axiograd.scale.attribute import KEY, Attribute
from axiograd.scale.sources import Listed, open_parquet, reading_parquet

#: Readers of Parquet folders pass over names that begin with an underscore.
SETTINGS = "_settings.json"
#: Rows of which at least one must be attributed before anything is written.
_TRIED = 64
_KEPT = "The parts that are written are whole and stay readable, and the same command resumes from them"


def write_attributions(
    attribute: Attribute,
    source: Listed,
    out: str | Path,
    *,
    workers: int | None = None,
    limit: int | None = None,
    batch_size: int = 32,
    part_rows: int = 1024,
    progress: bool | None = None,
) -> Statistics:
    """Attribute every row of a source into a folder of Parquet parts; the same call resumes after an interruption.

    With `workers`, these are actors of Ray Data, of one core each, and write the same rows. Ray is used as it is: call
    `ray.init` before, or set ``RAY_ADDRESS``, for a cluster, all machines of which must see `out`.

    >>> import tempfile, torch
    >>> source = Listed("three", ["a", "b", "c"], torch.eye(3).__getitem__)
    >>> model = torch.nn.Linear(3, 2, bias=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_attributions(Attribute(model), source, folder).rows
    3
    """
    if min(1 if workers is None else workers, batch_size, part_rows) < 1:
        raise ConfigurationError(f"workers={workers}, batch_size={batch_size}, part_rows={part_rows}: at least 1 each.")
    rows = len(source) if limit is None else min(limit, len(source))
    _try(attribute, source, rows)
    # Rows of different batch sizes may differ in their last bits: parts are made of whole batches.
    part_rows = -(-part_rows // batch_size) * batch_size
    provenance = attribute.provenance() | {"data": source.name, "rows": rows, "features": list(source.features)}
    parts = _Parts(attribute, source, Path(out).absolute(), rows, part_rows, batch_size, provenance)
    with alone(parts.folder):
        parts.check_settings()
        todo = parts.missing()
        if workers is not None:
            _by_ray(parts, todo, workers)
        else:
            with progress_bar("attributions", total=rows, shown=progress) as update:
                update(completed=max(0, rows - len(todo) * part_rows))
                for number in todo:
                    parts.write(number)
                    update(advance=part_rows)
        if missing := parts.missing():
            raise StorageError(
                f"{parts.folder}: {len(missing)} of {len(todo)} parts were written and are not here. All machines must "
                "see this folder, under this name."
            )
        for unfinished in parts.folder.glob(".part-*.parquet.*"):  # by killed workers
            unfinished.unlink(missing_ok=True)
    return Statistics.of(parts.folder)


def _try(attribute: Attribute, source: Listed, rows: int) -> None:
    """Attribute the first row that can be, so that what is wrong with all of them is said before the work."""
    first: str | None = None
    for place in range(min(rows, _TRIED)):
        reason = attribute.rows(source, [place])["error"][0]
        if reason is None:
            return
        first = first or reason.rstrip(".")
    if first is None:
        raise InputError(f"{source.name} has no rows: there is nothing to attribute.")
    raise InputError(
        f"{source.name}: none of the first {min(rows, _TRIED)} samples can be attributed; the first one: {first}."
    )


@dataclass(frozen=True)
class _Parts:
    """What a worker needs to know to compute any part, and to write it."""

    attribute: Attribute
    source: Listed
    folder: Path
    rows: int
    part_rows: int
    batch_size: int
    #: JSON that every part carries, the same from every worker.
    provenance: dict[str, Any]

    def path(self, number: int) -> Path:
        return self.folder / f"part-{number:06d}.parquet"

    def missing(self) -> list[int]:
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

    def write(self, number: int) -> None:
        """Compute one part, and write it whole or not at all."""
        places = range(number * self.part_rows, min((number + 1) * self.part_rows, self.rows))
        columns: dict[str, list[Any]] = {}
        for low in range(0, len(places), self.batch_size):
            for name, values in self.attribute.rows(self.source, places[low : low + self.batch_size]).items():
                columns.setdefault(name, []).extend(values)
        kept = {"row": places, "name": [self.source.names[place] for place in places]}
        table = self.attribute.table(kept, columns, self.provenance)
        # Numbers of which no two are equal only grow by a dictionary.
        words = [field.name for field in table.schema if str(field.type) == "string"]
        with writing(self.path(number), _KEPT), replacing(self.path(number)) as building:
            pq = optional("pyarrow.parquet", "scale", "Parquet")
            pq.write_table(table, building, compression="zstd", use_dictionary=words)


def _by_ray(parts: _Parts, todo: Sequence[int], workers: int) -> None:
    if not todo:
        return
    ray = optional("ray", "ray", "workers")
    data = optional("ray.data", "ray", "workers", package="ray[data]")
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
        self.parts: _Parts = optional("ray", "ray", "workers").get(parts[0])

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
