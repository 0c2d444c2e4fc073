"""Checkpoints on disk: a folder of safetensors files and a JSON file, written atomically, checked when read.

    out/step-00000120/model.safetensors       weights and buffers
                      optimizer.safetensors   what the optimizer remembers, by parameter name
                      objective.safetensors   where the prior's schedule and generator are
                      state.json              position, seed, recipe, history; and the sha256 of everything

A folder gets its name by one rename after all of its bytes are on disk, so a half-written one never has it.
Nothing is pickled: reading a checkpoint cannot run code.
"""

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from axiograd.errors import MissingExtraError, StorageError
from axiograd.runs.files import replacing, sync, write_bytes

FORMAT = 1
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """What one folder holds."""

    folder: Path
    state: dict[str, Any]
    tensors: dict[str, Tensors]

    @property
    def step(self) -> int:
        """The number of optimizer steps done."""
        return int(self.state["step"])


def folder(out: Path, step: int) -> Path:
    """Where the checkpoint after so many steps is."""
    return out / f"step-{step:08d}"


def write(out: Path, step: int, tensors: Mapping[str, Tensors], state: Mapping[str, Any]) -> Path:
    """Write `out/step-…` so that, whatever happens, it is either complete or not there."""
    final = folder(out, step)
    building = out / f"tmp-{final.name}"
    out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    sums = {name: write_tensors(building / f"{name}.safetensors", members) for name, members in tensors.items()}
    body = {"format": FORMAT, "step": step, **state, "files": sums}
    sealed = {"sha256": _seal(body), "body": body}
    write_bytes(building / "state.json", json.dumps(sealed, indent=1).encode())
    sync(building)
    if final.exists():
        old = out / f"tmp-old-{final.name}"
        shutil.rmtree(old, ignore_errors=True)
        final.rename(old)
        building.rename(final)
        shutil.rmtree(old)
    else:
        building.rename(final)
    sync(out)
    return final


def read(path: Path) -> Checkpoint:
    """Read one checkpoint, or raise `StorageError` that says what is wrong with it."""
    try:
        sealed = json.loads((path / "state.json").read_bytes())
        body = sealed["body"]
        expected, sums = sealed["sha256"], dict(body["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path}: state.json is missing or damaged ({error})") from error
    if _seal(body) != expected:
        raise StorageError(f"{path}: state.json does not have the checksum it was written with")
    if body["format"] != FORMAT:
        raise StorageError(f"{path}: format {body['format']}, but this version reads format {FORMAT}")
    tensors = {name: read_tensors(path / f"{name}.safetensors", digest) for name, digest in sums.items()}
    return Checkpoint(path, body, tensors)


def latest(out: Path) -> Checkpoint | None:
    """The newest sound checkpoint; damaged ones are reported, and set aside as `damaged-step-…`."""
    for path in reversed(steps(out)):
        try:
            return read(path)
        except StorageError as error:
            aside = _free_name(out, f"damaged-{path.name}")
            path.rename(aside)
            warnings.warn(f"{error}; set aside as {aside.name}, going back to the one before it", stacklevel=2)
    return None


def steps(out: Path) -> list[Path]:
    """The checkpoint folders, oldest first."""
    return sorted(path for path in out.glob("step-*") if re.fullmatch(r"step-\d{8,}", path.name) and path.is_dir())


def prune(out: Path, *, keep: int = 2, also: Iterable[int | None] = ()) -> None:
    """Remove all but the newest `keep` checkpoints and those in `also`, and what broken writes left."""
    kept = {folder(out, step) for step in also if step is not None}
    for old in steps(out)[:-keep]:
        if old not in kept:
            # renamed first: a removal that is cut short must not leave a damaged checkpoint behind
            old.rename(out / f"tmp-old-{old.name}")
    for rest in out.glob("tmp-*"):
        shutil.rmtree(rest, ignore_errors=True)


def write_tensors(path: Path, tensors: Tensors) -> str:
    """Write a safetensors file through a temporary one; return its sha256."""
    safetensors = _safetensors()
    data: bytes = safetensors.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    with replacing(path, path.with_name(f"tmp-{path.name}")) as building:
        write_bytes(building, data)
    return hashlib.sha256(data).hexdigest()


def read_tensors(path: Path, digest: str | None = None) -> Tensors:
    """Read a safetensors file, and check its sha256 where one is given."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({error})") from error
    if digest is not None and hashlib.sha256(data).hexdigest() != digest:
        raise StorageError(f"{path} ({len(data)} bytes) does not have the checksum it was written with")
    load = _safetensors().load
    from safetensors import SafetensorError

    try:
        found = load(data)
    except SafetensorError as error:
        raise StorageError(f"{path} is damaged, or no safetensors file: {error}") from error
    # in the order of names: safetensors gives another one in each process, and ranks must go through them together
    return dict(sorted(found.items()))


def _seal(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _free_name(out: Path, name: str) -> Path:
    candidates = (out / (name if i == 0 else f"{name}-{i}") for i in range(10_000))
    return next(path for path in candidates if not path.exists())


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise MissingExtraError("safetensors", "train", "a checkpoint") from error
    return safetensors.torch
