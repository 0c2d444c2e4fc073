"""Attributions of a whole data set, streamed to disk, and read back row by row.

A folder holds ``run.json`` (settings, structure of the inputs, seed) and shards, whose names are the index:
``shard-000000128-000000192.safetensors`` has samples 128 to 191. Every file appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import length_hint
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from axiograd._calls import Call, read_call
from axiograd._io import (
    alone,
    digest,
    load_tensors,
    model_settings,
    progress_bar,
    read_header,
    require_same_settings,
    safetensors,
    save_tensors,
    settings_of,
    write_atomically,
    writing,
)
from axiograd._state import module_of
from axiograd._typing import Target
from axiograd._version import __version__
from axiograd.attribution.base import Attribution
from axiograd.attribution.expected_gradients import ExpectedGradients
from axiograd.attribution.rows import rows_of
from axiograd.errors import ConfigurationError, InputError, StorageError

#: From a batch to its inputs and labels (None if it has none).
Split: TypeAlias = Callable[[Any], tuple[Any, Any]]

_RUN = "run.json"
_LABELS = ("label", "labels", "target", "targets", "y")
_SHUFFLES = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


def split_batch(batch: Any) -> tuple[Any, Any]:
    """Inputs and labels of a batch ``x``, ``(x,)``, ``(x, y)``, where x is anything a model takes, or a mapping.

    >>> split_batch({"pixels": torch.ones(1, 2), "label": torch.tensor([1])})
    ({'pixels': tensor([[1., 1.]])}, tensor([1]))
    """
    if isinstance(batch, Tensor):
        return batch, None
    if isinstance(batch, Mapping):
        names = [name for name in _LABELS if name in batch]
        if len(names) > 1:
            raise InputError(f"the batch has {' and '.join(names)}: say which is the label with split=.")
        named = {name: value for name, value in batch.items() if name not in names}
        return named, batch[names[0]] if names else None
    if isinstance(batch, tuple | list) and 1 <= len(batch) <= 2:  # noqa: PLR2004  # x, or x and y
        inputs = tuple(batch[0]) if isinstance(batch[0], list) else batch[0]
        return inputs, batch[1] if len(batch) == 2 else None  # noqa: PLR2004
    size = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
    raise InputError(
        f"a batch that is a {type(batch).__name__}{size}: expected x, (x, y) or a mapping. Otherwise say what is what, "
        "for example split=lambda batch: ((batch[0], batch[1]), batch[2])."
    )


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
    """Attribute every batch of a loader into safetensors shards; after an interruption the same call resumes.

    Targets are the batches' labels, each sample's largest output ("predicted"), or what `attribute` takes. Generators
    that the method holds are seeded anew for each batch, from their state at the start, so that a resumed run equals
    an uninterrupted one. At most about two shards are in memory; the process may be killed at any time. A folder
    that was written with other settings, another model, another first batch or other numbers of batches is refused.

    >>> import tempfile, axiograd
    >>> method = axiograd.Gradient(lambda x: x @ torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stored = attribute_dataset(method, [torch.eye(2)], out=folder, target="predicted", progress=False)
    ...     stored[:]["attributions"], stored[:]["target"]
    (tensor([[2., 4.], [2., 4.]]), tensor([1, 1]))
    """
    safetensors()
    _check_order(method, loader)
    folder, n = Path(out), length_hint(loader) or None
    call = {"baselines": baselines, "additional_forward_args": additional_forward_args}
    settings = {"target": target, "dtype": dtype, **call, "batches": n}
    waiting: list[dict[str, Tensor]] = []
    row = 0
    with alone(folder), progress_bar("attributions", total=n, shown=progress, extra="storage") as update:
        run, done = _read_run(folder), {i for shard in _shards(folder) for i in range(*_checked(shard))}
        for number, batch in enumerate(loader):
            inputs, label = split(batch)
            arguments = read_call(inputs, additional_forward_args)
            if number == 0:
                run = _begin(folder, run, method, settings | {"first batch": batch}, arguments)
            if row in done:
                _write_shard(folder, row, waiting)
            else:
                inputs, label = _on_device_of(method, (inputs, label))
                with _seeded(method, f"{run['seed']} {number}"):
                    waiting.append(rows_of(method, inputs, label, target, dtype, call))
            row += arguments.batch
            if sum(t.nbytes for rows in waiting for t in rows.values()) >= shard_bytes:
                _write_shard(folder, row, waiting)
            update(advance=1)
        _write_shard(folder, row, waiting)
        _finish(folder, run, row, stored=max(done, default=-1) + 1)
    return AttributionDataset(folder, verify=False)


class AttributionDataset(Dataset[dict[str, Any]]):
    """What `attribute_dataset` stored: ``attributions`` and, if they were stored, ``outputs``, ``target``, ``label``.

    An index gives one sample, a slice gives a batch; only these rows are read (files are memory-mapped). A shard's
    checksum is compared when it is first read, unless ``verify=False``.

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
        self.folder = Path(folder)
        run = _read_run(self.folder)
        if not run:
            raise StorageError(f"{self.folder} holds no attributions: attribute_dataset(..., out=folder) makes them.")
        #: Whether the run went to the end of its loader.
        self.complete: bool = run["samples"] is not None
        #: The files, in the order of the samples.
        self.shards = _shards(self.folder)
        spans = [_span(shard) for shard in self.shards]
        self._ends = [end for _, end in spans]
        starts = [start for start, _ in spans] + [run["samples"]] * self.complete
        for end, start in zip([0, *self._ends], starts, strict=False):
            if end != start:
                raise StorageError(
                    f"{self.folder} has no shard with samples {end} to {start - 1}: run attribute_dataset again, which "
                    "recomputes them and nothing else."
                )
        self._structure = Call((), {}, tuple(run["slots"]), run["single"], run["n_inputs"], run["by_name"])
        self._unchecked = set(self.shards) if verify else set()

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, which: int | slice) -> dict[str, Any]:
        if isinstance(which, slice):
            start, stop, step = which.indices(len(self))
            if step != 1 or stop <= start:
                raise IndexError(f"{which}: expected a slice that is not empty and has step 1.")
            return self._read(start, stop)
        row = which + len(self) if which < 0 else which
        if not 0 <= row < len(self):
            raise IndexError(f"sample {which} of {len(self)}.")
        return pytree.tree_map_only(Tensor, lambda rows: rows[0], self._read(row, row + 1))  # type: ignore[no-any-return]

    def verify(self) -> None:
        """Compare the checksum of every shard; a damaged one raises `StorageError`."""
        for shard in self.shards:
            _checked(shard)

    def __repr__(self) -> str:
        n, state = len(self.shards), "complete" if self.complete else "not complete"
        return f"AttributionDataset({self.folder}, {len(self)} samples in {n} shard{'s' * (n != 1)}, {state})"

    def _read(self, start: int, stop: int) -> dict[str, Any]:
        parts: list[dict[str, Tensor]] = []
        row = start
        while row < stop:
            number = bisect_right(self._ends, row)
            shard, end = self.shards[number], min(stop, self._ends[number])
            offset = self._ends[number - 1] if number else 0
            if shard in self._unchecked:
                _checked(shard)
                self._unchecked.remove(shard)
            with safetensors().safe_open(shard, framework="pt") as file:
                parts.append({name: file.get_slice(name)[row - offset : end - offset] for name in file.keys()})  # noqa: SIM118
            row = end
        tensors = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        attributions = [tensors.pop(f"attributions.{slot}") for slot in self._structure.slots]
        return {"attributions": self._structure.pack(attributions), **tensors}


# What a folder holds


def _read_run(folder: Path) -> dict[str, Any]:
    """The folder's run file; empty if there is none yet."""
    path = folder / _RUN
    if not path.exists():
        if shards := _shards(folder):
            raise StorageError(f"{folder} has {shards[0].name} but no {_RUN}: choose another, empty folder.")
        return {}
    run: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return run


def _write_run(folder: Path, run: Mapping[str, Any]) -> None:
    write_atomically(folder / _RUN, json.dumps(run, indent=1).encode())


def _shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("shard-*.safetensors"))


def _span(shard: Path) -> tuple[int, int]:
    """The first sample of a shard, and the first behind it."""
    _, first, end = shard.stem.split("-")
    return int(first), int(end)


def _checked(shard: Path) -> tuple[int, int]:
    """The span of a shard whose tensors have the digest that they were written with."""
    try:
        intact = digest(load_tensors(shard)) == read_header(shard).get("digest")
    except StorageError:
        intact = False
    if not intact:
        raise StorageError(
            f"{shard} is damaged: delete this file and run attribute_dataset again, which recomputes it and nothing "
            "else."
        )
    return _span(shard)


def _write_shard(folder: Path, end: int, waiting: list[dict[str, Tensor]]) -> None:
    """Write batches in a row, up to the sample `end`, as one file, if there are any."""
    if not waiting:
        return
    kinds = {tuple((name, t.dtype, t.shape[1:]) for name, t in rows.items()) for rows in waiting}
    if len(kinds) > 1:
        raise InputError(
            f"batches before sample {end} differ in what they hold or in its shape: "
            f"{'; '.join(sorted(map(str, kinds)))}. Make all samples of one shape, and give all of them labels or none."
        )
    whole = {name: torch.cat([rows[name] for rows in waiting]) for name in waiting[0]}
    first = end - len(next(iter(whole.values())))
    path = folder / f"shard-{first:09d}-{end:09d}.safetensors"
    with writing(path, "Finished shards are kept"):
        save_tensors(path, whole, {"digest": digest(whole)})
    waiting.clear()


# What a run must have in common with the one that it resumes


def _begin(
    folder: Path, run: dict[str, Any], method: Attribution, settings: dict[str, Any], call: Call
) -> dict[str, Any]:
    """The run file of a new run, or of the one that is resumed with the same settings."""
    own = {name: value for name, value in vars(method).items() if name != "model" and not name.startswith("_")}
    if isinstance(method, ExpectedGradients):
        own["references"] = method.references.settings()
    generator, module = own.get("generator"), module_of(method.model)
    here = {
        "axiograd": __version__,
        "method": {"name": type(method).__name__} | settings_of(own),
        "generator": None if generator is None else digest(generator.get_state()),
        "model": settings_of(method.model) if module is None else model_settings(module),
        **settings_of(settings),
    }
    for leftover in folder.glob("tmp-*"):
        leftover.unlink()
    if run:
        require_same_settings(folder, run["settings"], here, "Choose another folder, or delete that one.")
        return run
    # Draws follow the generator that the user gave; without one, a resumed run has the seed from here.
    seed = here["generator"] or secrets.token_hex(8)
    structure = {name: getattr(call, name) for name in ("slots", "single", "n_inputs", "by_name")}
    run = {"settings": here, "seed": seed, **structure, "samples": None}
    _write_run(folder, run)
    return run


def _finish(folder: Path, run: dict[str, Any], seen: int, stored: int) -> None:
    if not seen:
        raise InputError("the loader is empty: there is nothing to attribute.")
    if seen != (run["samples"] or max(stored, seen)):
        raise StorageError(
            f"{folder} was written for another data set: it has {run['samples'] or stored} samples there, and {seen} "
            "here. Choose another folder, or delete that one."
        )
    _write_run(folder, run | {"samples": seen})


def _check_order(method: Attribution, loader: Iterable[Any]) -> None:
    """What is drawn by a loader cannot be resumed: nobody would know which samples are left, nor whose a row is."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    for sampler in (getattr(loader, "sampler", None), getattr(batch_sampler, "sampler", None)):
        if isinstance(sampler, _SHUFFLES):
            raise ConfigurationError(
                f"the loader shuffles ({type(sampler).__name__}), so rows cannot be matched with samples, and a run "
                "cannot be resumed: make it with shuffle=False."
            )
    if isinstance(method, ExpectedGradients) and method.references.from_loader:
        raise ConfigurationError(
            "references from a loader depend on how often it was read, so a run could not be resumed: give "
            "ExpectedGradients the loader's data set, or a tensor."
        )


def _on_device_of(method: Attribution, batch: Any) -> Any:
    module = module_of(method.model)
    parameter = None if module is None else next(module.parameters(), None)
    return batch if parameter is None else pytree.tree_map_only(Tensor, lambda t: t.to(parameter.device), batch)


@contextmanager
def _seeded(method: Attribution, seed: str) -> Iterator[None]:
    """Generators of the method start from the seed of a batch, and are left as they were."""
    generators = [value for value in vars(method).values() if isinstance(value, torch.Generator)]
    states = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(int(digest(seed)[:15], 16))
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
