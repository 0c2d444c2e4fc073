"""The same work on one process or on Ray: whoever computes a part writes the same file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from axiograd import errors
from axiograd._io import progress_bar, write_atomically
from axiograd._version import __version__
from axiograd.errors import AxiogradError, ConfigurationError, StorageError
from axiograd.scale.attribute import Attribute, prove_on
from axiograd.scale.cluster import cluster, first_line, ray_data
from axiograd.scale.folder import STATISTICS, Folder
from axiograd.scale.sources import Source, check_rows
from axiograd.scale.statistics import Statistics
from axiograd.scale.table import as_table, pyarrow

Engine = Literal["plain", "ray"]
#: Rows that are looked at for one to prove the model on.
_TRIED = 64
#: Times that a part is begun: those before the last have ended with the death of their worker.
_TRIES = 10


@dataclass
class PartWork:
    """What a worker needs to know to compute any part; it makes its own `Attribute`, and proves the model once."""

    make: Callable[[], Attribute]
    source: Source
    folder: Folder
    rows: int
    part_rows: int
    batch_size: int
    #: JSON that every part carries, the same from every worker.
    provenance: dict[str, Any]
    tries: int = _TRIES

    @cached_property
    def attribute(self) -> Attribute:
        """This worker's own, if it is the model that the run is about."""
        made = self.make()
        if made.provenance()["model"] != self.provenance["model"]:
            raise ConfigurationError(
                "a worker that made the model by itself got other weights than the process that started it: seed what "
                "is random in the function that makes it, or load weights from a file."
            )
        return made

    @property
    def parts(self) -> int:
        """How many there are."""
        return -(-self.rows // self.part_rows)

    def part(self, number: int) -> int:
        """Compute and write one part; how many rows it has."""
        start, stop = number * self.part_rows, min((number + 1) * self.part_rows, self.rows)
        columns: dict[str, list[Any]] = {"row": [], "name": []}
        for low in range(start, stop, self.batch_size):
            high = min(low + self.batch_size, stop)
            read = self.source.read(low, high)
            columns["row"] += range(low, high)
            columns["name"] += read.names
            for name, values in self.attribute.rows(read.inputs, read.labels, read.masks).items():
                columns.setdefault(name, []).extend(values)
        self.folder.write(number, as_table(columns, self.attribute.schema(self.provenance)))
        return stop - start


def write_attributions(
    attribute: Attribute | Callable[[], Attribute],
    source: Source,
    out: str | Path,
    *,
    engine: Engine = "plain",
    workers: int = 1,
    address: str | None = None,
    batch_size: int = 32,
    part_rows: int = 1024,
    progress: bool | None = None,
) -> Statistics:
    """Attribute every row of a source into a folder of Parquet parts; the same call resumes after an interruption.

    The rows, the schema and its metadata are the same from both engines. Ray's workers are actors of one core each,
    which Ray Data starts again if they die; with `address`, on the machines of a cluster that see `out`.

    >>> import tempfile, torch
    >>> from axiograd.scale.sources import Listed
    >>> model = torch.nn.Linear(3, 2, bias=False)
    >>> source = Listed("three", ["a", "b", "c"], torch.eye(3).__getitem__)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_attributions(Attribute(model), source, folder).rows
    3
    """
    pyarrow()
    if engine not in get_args(Engine):
        raise ConfigurationError(f"engine={engine!r}: choose one of {', '.join(get_args(Engine))}.")
    if workers < 1 or batch_size < 1 or part_rows < 1:
        raise ConfigurationError(f"workers={workers}, batch_size={batch_size}, part_rows={part_rows}: at least 1 each.")
    if engine == "plain" and (workers > 1 or address is not None):
        raise ConfigurationError(
            "the plain engine is one process: for several workers, or an address, say engine='ray'."
        )
    rows = check_rows(source)
    # Rows of different batch sizes may differ in their last bits: parts are made of whole batches.
    part_rows = -(-part_rows // batch_size) * batch_size
    own = attribute if isinstance(attribute, Attribute) else attribute()
    tried = source.read(0, min(rows, _TRIED))
    prove_on(own, tried.inputs, tried.labels, source.name)
    make = attribute if not isinstance(attribute, Attribute) else _Given(attribute)
    folder = Folder(Path(out).absolute())  # workers may be in another directory
    provenance = own.provenance() | {
        "data": source.name,
        "rows": rows,
        "features": list(getattr(source, "features", ())),
    }
    work = PartWork(make, source, folder, rows, part_rows, batch_size, provenance, _TRIES)
    run = {
        "axiograd": __version__,
        "attribute": own.settings(),
        "data": source.settings(),
        "batch": batch_size,
        "part": part_rows,
    }
    with folder.open(run):
        todo = sorted(set(range(work.parts)) - folder.written())
        with progress_bar("attributions", total=rows, shown=progress, extra="cli") as update:
            update(advance=rows - sum(min(part_rows, rows - k * part_rows) for k in todo))
            done = _plain(work, own, todo) if engine == "plain" else _ray(work, todo, workers, address)
            for finished in done:
                update(advance=finished)
        if missing := set(range(work.parts)) - folder.written():
            raise StorageError(
                f"{folder.path}: {len(missing)} of {work.parts} parts were written and are not here. All machines must "
                "see this folder, under this name."
            )
        statistics = Statistics.of(folder.path)
        write_atomically(folder.path / STATISTICS, json.dumps(statistics.to_dict(), indent=1).encode())
    return statistics


@dataclass(frozen=True)
class _Given:
    """An `Attribute` that is there already."""

    attribute: Attribute

    def __call__(self) -> Attribute:
        return self.attribute


def _plain(work: PartWork, own: Attribute, todo: Sequence[int]) -> Iterator[int]:
    work.attribute = own
    for number in todo:
        yield work.part(number)


def _ray(work: PartWork, todo: Sequence[int], workers: int, address: str | None) -> Iterator[int]:
    if not todo:
        return
    ray = ray_data()
    with cluster(ray, workers, address):
        reference = ray.put(work)
        jobs = ray.data.from_items([{"part": number} for number in todo], override_num_blocks=len(todo))
        done = jobs.map_batches(
            RayWorker,
            fn_constructor_args=[[reference]],
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=min(workers, len(todo))),
            num_cpus=1,
        )
        for row in _told(ray, done.iter_rows()):
            if row["failure"]:
                kind = getattr(errors, str(row["kind"]), AxiogradError)
                raise kind(str(row["failure"]))
            yield int(row["rows"])


def _told(ray: Any, rows: Iterator[Any]) -> Iterator[Any]:
    """The rows; what Ray raises as an error of ours, without the traces of all processes on the way."""
    try:
        yield from rows
    except ray.exceptions.RayError as error:
        cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
        raise AxiogradError(
            f"Ray's workers failed: {type(cause).__name__}: {first_line(cause)}. The parts that are written stay, and "
            "the same call resumes from them; the plain engine shows where it happens."
        ) from error


class RayWorker:
    """An actor of Ray Data: it holds the model, and computes the parts that it is given."""

    def __init__(self, work: list[Any]) -> None:
        # In a list, so that the reference arrives and not a copy of what it refers to.
        self.work: PartWork = ray_data().get(work[0])

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        rows, kind, failure = 0, "", ""
        for number in batch["part"]:
            try:
                self._begin(int(number))
                rows += self.work.part(int(number))
            except AxiogradError as error:  # what was foreseen is told, and not tried again
                kind, failure = type(error).__name__, str(error)
        return {"rows": [rows], "kind": [kind], "failure": [failure]}

    def _begin(self, number: int) -> None:
        """Ray tries for ever: a part that kills whoever computes it would never let the run end."""
        work = self.work
        if work.folder.begun(number) > work.tries:
            first, last = number * work.part_rows, min((number + 1) * work.part_rows, work.rows) - 1
            raise AxiogradError(
                f"Ray's workers died {work.tries} times at rows {first} to {last} of {work.source.name}: one of them "
                "may need more memory than there is. The parts that are written stay, and the same call resumes from "
                "them; the plain engine shows where it happens."
            )
