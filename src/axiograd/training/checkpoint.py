"""Checkpoints on disk: a folder of safetensors files and a JSON file, written atomically, checked when read.

    out/step-00000120/model.safetensors       weights and buffers
                      optimizer.safetensors   what the optimizer remembers, by parameter name
                      objective.safetensors   where the prior's schedule and generator are
                      state.json              position, history, the run's identity; and the sha256 of everything

A folder gets its name by one rename after all of its bytes are on disk, so a half-written one never has it.
Nothing is pickled: reading a checkpoint cannot run code.
"""

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from axiograd._io import load_tensors, save_tensors, sync, writing
from axiograd.errors import StorageError

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
    before = [path.name for path in steps(out)]
    safe = f"{before[-1]} is complete, and the same call resumes there." if before else "Nothing is saved yet."
    with writing(final, safe), _building(out / f"tmp-{final.name}") as building:
        sums = {name: save_tensors(building / f"{name}.safetensors", members) for name, members in tensors.items()}
        body = {"format": FORMAT, "step": step, **state, "files": sums}
        sealed = {"sha256": _seal(body), "body": body}
        described = building / "state.json"
        described.write_bytes(json.dumps(sealed, indent=1).encode())
        sync(described)
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


@contextmanager
def _building(path: Path) -> Iterator[Path]:
    """An empty folder that does not stay if what is done with it fails."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def read(path: Path) -> Checkpoint:
    """Read one checkpoint, or raise `StorageError` that says what is wrong with it."""
    try:
        sealed = json.loads((path / "state.json").read_bytes())
        body = sealed["body"]
        expected, sums = sealed["sha256"], dict(body["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path}: state.json is missing or damaged ({error}).") from error
    if _seal(body) != expected:
        raise StorageError(f"{path}: state.json does not have the checksum that it was written with.")
    if body["format"] != FORMAT:
        raise StorageError(f"{path}: format {body['format']}, but this version reads format {FORMAT}.")
    tensors = {name: load_tensors(path / f"{name}.safetensors", digest) for name, digest in sums.items()}
    return Checkpoint(path, body, tensors)


def latest(out: Path, *, aside: bool = True) -> Checkpoint | None:
    """The newest sound checkpoint; damaged ones are reported and, in a run's own folder, set aside."""
    for path in reversed(steps(out)):
        try:
            return read(path)
        except StorageError as error:
            what = f"set aside as {set_aside(path).name}" if aside else "not used"
            warnings.warn(f"{error} It is {what}; going back to the one before it.", stacklevel=2)
    return None


def set_aside(path: Path) -> Path:
    """Rename a damaged checkpoint to `damaged-step-…`."""
    name = f"damaged-{path.name}"
    candidates = (path.with_name(name if i == 0 else f"{name}-{i}") for i in range(10_000))
    aside = next(candidate for candidate in candidates if not candidate.exists())
    return path.rename(aside) if path.exists() else path


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


def model_tensors(module: nn.Module) -> Tensors:
    """Weights and buffers on the CPU, whole even where the strategy shards them (all ranks call, rank 0 gets them)."""
    if is_sharded(module):
        sharded, options = _sharded(cpu_offload=True)
        return dict(_tensors_only(sharded.get_model_state_dict(module, options=options)))
    # a copy: tied weights share memory, which safetensors refuses
    return {name: tensor.detach().cpu().clone() for name, tensor in _tensors_only(module.state_dict()).items()}


def load_model(module: nn.Module, tensors: Tensors) -> None:
    """Put weights and buffers into the module; the names must match exactly."""
    try:
        if is_sharded(module):
            sharded, options = _sharded()
            sharded.set_model_state_dict(module, dict(tensors), options=options)
        else:
            module.load_state_dict(tensors)
    except RuntimeError as error:
        raise StorageError(f"the checkpoint does not fit the model: {error}") from error


def optimizer_tensors(module: nn.Module, optimizer: torch.optim.Optimizer) -> Tensors:
    """`{"parameter|what": tensor}` of everything that the optimizer remembers."""
    if is_sharded(module):
        sharded, options = _sharded(cpu_offload=True)
        whole: dict[str, Any] = sharded.get_optimizer_state_dict(module, optimizer, options=options)
        remembered = whole.get("state", {})  # all of it on rank 0, nothing elsewhere
    else:
        names: dict[Tensor, str] = {parameter: name for name, parameter in module.named_parameters()}
        remembered = {names[parameter]: values for parameter, values in optimizer.state.items()}
    return {
        f"{name}|{what}": torch.as_tensor(value).detach().cpu().clone()
        for name, values in remembered.items()
        for what, value in values.items()
        if value is not None
    }


def load_optimizer(module: nn.Module, optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    """Give the optimizer its memory back."""
    remembered: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, what = key.rpartition("|")
        remembered.setdefault(name, {})[what] = tensor
    names = {parameter: name for name, parameter in module.named_parameters()}
    if is_sharded(module):
        sharded, options = _sharded()
        current: dict[str, Any] = sharded.get_optimizer_state_dict(module, optimizer, options=options)
        whole = {"state": remembered, "param_groups": current["param_groups"]}
        sharded.set_optimizer_state_dict(module, optimizer, whole, options=options)
        return
    unknown = remembered.keys() - set(names.values())
    if unknown:
        raise StorageError(
            f"the checkpoint's optimizer knows parameters that the model does not have: {sorted(unknown)}."
        )
    # through load_state_dict, which puts each tensor on the device and in the dtype that the optimizer wants
    flat = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    whole = optimizer.state_dict()
    whole["state"] = {i: remembered[names[p]] for i, p in enumerate(flat) if names[p] in remembered}
    optimizer.load_state_dict(whole)


def _sharded(*, cpu_offload: bool = False) -> tuple[Any, Any]:
    """Torch's functions for the state of sharded models, and the option to have it whole."""
    from torch.distributed.checkpoint import state_dict

    return state_dict, state_dict.StateDictOptions(full_state_dict=True, cpu_offload=cpu_offload)


def is_sharded(module: nn.Module) -> bool:
    """Whether the parameters are cut into pieces that live on different ranks (FSDP)."""
    if any(hasattr(parameter, "full_tensor") for parameter in module.parameters()):
        return True
    if not torch.distributed.is_available():
        return False
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    # After a forward pass, the parameters of the outermost one are still whole.
    return any(isinstance(part, FSDPModule | FullyShardedDataParallel) for part in module.modules())


def _tensors_only(state: Mapping[str, Any]) -> dict[str, Tensor]:
    strange = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if strange:
        raise StorageError(
            f"the model's state_dict has entries that are not tensors ({', '.join(strange)}): they cannot be "
            "stored without pickling code; keep them as buffers."
        )
    return dict(state)


def _seal(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
