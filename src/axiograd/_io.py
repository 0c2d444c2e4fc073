"""Files written whole or not at all, tensors on disk, and the settings that a resumed run must share."""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import re
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from axiograd._extras import optional
from axiograd.errors import StorageError

# Atomic writes


@contextmanager
def replacing(target: Path, temporary: Path | None = None) -> Iterator[Path]:
    """A temporary path next to the target; its file replaces the target once it is on the disk.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.txt") as building:
    ...         _ = building.write_text("whole")
    ...     [path.name for path in Path(folder).iterdir()]
    ['a.txt']
    """
    beside = temporary or target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        yield beside
        sync(beside)
        beside.replace(target)
        sync(target.parent)
    finally:
        beside.unlink(missing_ok=True)


def write_atomically(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write next to the target and rename: an interruption leaves the old file or none."""
    target = Path(path)
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as building:
            building.write_bytes(content)
    return target


def sync(path: Path) -> None:
    """Flush a file's bytes, or the names in a folder, to the disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open directories, and writes their entries by itself
        return
    # Windows flushes only what is open for writing.
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writing(target: Path, kept: str = "") -> Iterator[None]:
    """Turn the system's errors into a `StorageError` that says what to do and what is `kept`."""
    try:
        yield
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
        advice = "Free some space on that disk and run again." if full else "Choose a folder that is writable."
        safe = f" {kept.rstrip('.')}." if kept else ""
        raise StorageError(f"Cannot write {str(target)!r}: {error.strerror or error}. {advice}{safe}") from error


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written or made before the work begins; nothing is left there."""
    nearest = next((path for path in (folder, *folder.absolute().parents) if path.exists()), Path())
    # Permissions do not say everything: disks are mounted read-only, or full.
    probe = nearest / f".axiograd-{secrets.token_hex(4)}"
    try:
        probe.write_bytes(b"1")
        probe.unlink()
    except OSError as error:
        raise StorageError(
            f"Cannot write to the folder {str(folder)!r}: {str(nearest)!r} is not a writable folder "
            f"({error.strerror}). Choose another one."
        ) from error


#: Locks of the system are per process, so that threads need a list of their own.
_locked: set[Path] = set()
_locking = threading.Lock()


@contextmanager
def alone(folder: Path, lock: str = ".lock") -> Iterator[None]:
    """Make the folder if need be, and refuse to enter it while another process or thread is writing there.

    Those who write different files of one folder name a lock each. The system drops the lock when the process ends,
    however it ends.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name, alone(Path(name)):
    ...     with alone(Path(name)):
    ...         pass
    Traceback (most recent call last):
    axiograd.errors.StorageError: This process is already writing into ...
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder.resolve() / lock
    with _locking:
        # Before the file is opened: closing it again would drop the lock that this process has.
        if path in _locked:
            raise StorageError(f"This process is already writing into {str(folder)!r}: wait for it, or stop it.")
        _locked.add(path)
    try:
        with writing(path):
            file = path.open("ab")
        with file:
            if not _lock(file.fileno()):
                raise StorageError(
                    f"Another process is writing into {str(folder)!r}: wait for it, stop it, or choose another folder."
                )
            yield
    finally:
        with _locking:
            _locked.discard(path)


def _lock(descriptor: int) -> bool:
    """Lock the file until it is closed or its process ends; where the system has no such locks, go ahead."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in {errno.EACCES, errno.EAGAIN}
    return True


# Tensors as safetensors, which cannot hold code


def safetensors(purpose: str = "storing tensors") -> Any:
    """The library, or what to install."""
    optional("safetensors.torch", "storage", purpose)
    return optional("safetensors", "storage", purpose)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str] | None = None) -> str:
    """Write a file whole or not at all; return its sha256."""
    # Copies: safetensors refuses tensors that share their memory.
    own = {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    data: bytes = safetensors().torch.save(own, None if header is None else dict(header))
    path.parent.mkdir(parents=True, exist_ok=True)
    # One name for the file in the making, so that killed processes leave at most one of these, which are large.
    with replacing(path, path.with_name(f"tmp-{path.name}")) as building:
        building.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def load_tensors(path: Path, sha256: str | None = None) -> dict[str, Tensor]:
    """Read a file, and check its sha256 where one is given."""
    library = safetensors(f"reading {path.name}")
    with _reading(path):
        if sha256 is None:
            found: dict[str, Tensor] = library.torch.load_file(path)
        else:
            data = path.read_bytes()
            if hashlib.sha256(data).hexdigest() != sha256:
                raise StorageError(f"{path} ({len(data)} bytes) does not match the checksum it was written with.")
            found = library.torch.load(data)
    # By name: safetensors gives another order in each process, and ranks must go through them together.
    return dict(sorted(found.items()))


def read_header(path: Path) -> dict[str, str]:
    """A file's metadata."""
    library = safetensors(f"reading {path.name}")
    with _reading(path), library.safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (safetensors().SafetensorError, OSError) as error:
        raise StorageError(f"{path} is damaged, or is not a safetensors file: {str(error).rstrip('.')}.") from error


# Digests


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(*parts: bytes | str | Tensor | Mapping[str, Any]) -> str:
    """A short SHA-256 of text, bytes, tensors (dtype, shape and values) and state dicts.

    >>> digest(torch.zeros(2)) == digest(torch.zeros(2)), digest(torch.zeros(2)) == digest(torch.zeros(2, 1))
    (True, False)
    """
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            sha.update(f"{part.dtype}{tuple(part.shape)}".encode())
            values = part.detach().cpu().to_dense().resolve_conj().contiguous()
            sha.update(values.reshape(-1).view(torch.uint8).numpy().data)
        elif isinstance(part, Mapping):
            for name, value in sorted(part.items()):
                # Extra states of modules may be anything.
                sha.update(name.encode())
                sha.update(digest(value if isinstance(value, Tensor) else repr(value)).encode())
        else:
            sha.update(part.encode() if isinstance(part, str) else part)
    return sha.hexdigest()[:16]


# Settings

#: Differences that a message lists.
_LISTED = 12


def settings_of(value: Any) -> Any:
    """JSON that stands for a setting: numbers and text as they are, tensors as digests, functions and classes by name.

    The code of a function is not compared: when it changes, rename the function or choose another folder.

    >>> settings_of({"steps": 8, "x": torch.zeros(2), "dtype": torch.float32, "f": max})
    {'steps': 8, 'x': 'torch.float32 [2] 21ff1b764ef3e705', 'dtype': 'torch.float32', 'f': 'max'}
    >>> settings_of(nn.Dropout(0.1))
    {'name': 'Dropout', 'p': 0.1, 'inplace': False}
    """
    if isinstance(value, bool | int | float | str | None):
        return value
    if isinstance(value, Mapping):
        return {str(name): settings_of(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [settings_of(part) for part in value]
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        value = torch.as_tensor(np.ascontiguousarray(value))
    if isinstance(value, Tensor):
        return f"{value.dtype} {list(value.shape)} {digest(value)}"
    if isinstance(value, torch.Generator):
        return f"seed {value.initial_seed()}"  # its state moves on while the run does
    if hasattr(value, "__qualname__"):
        return value.__qualname__
    held = _held(value)
    return _without_address(repr(value)) if held is None else {"name": type(value).__qualname__} | settings_of(held)


def _held(value: Any) -> dict[str, Any] | None:
    """What modules, data classes and partial functions hold, by name."""
    if isinstance(value, nn.Module):
        own = {name: part for name, part in vars(value).items() if not name.startswith("_") and name != "training"}
        tensors = {**dict(value.named_parameters(recurse=False)), **dict(value.named_buffers(recurse=False))}
        return own | tensors | dict(value.named_children())
    if isinstance(value, functools.partial):
        return {"function": value.func, "arguments": value.args, **value.keywords}
    return {field.name: getattr(value, field.name) for field in fields(value)} if is_dataclass(value) else None


def _without_address(written: str) -> str:
    return re.sub(" at 0x[0-9a-fA-F]+", "", written)


def layers_of(model: nn.Module) -> dict[str, str]:
    """The layers of a network with their settings, by name.

    >>> layers_of(nn.Sequential(nn.Flatten(), nn.Dropout(0.1)))
    {'0': 'Flatten(start_dim=1, end_dim=-1)', '1': 'Dropout(p=0.1, inplace=False)'}
    """
    return {
        name or "whole": _without_address(f"{type(module).__qualname__}({module.extra_repr()})")
        for name, module in model.named_modules()
        if not isinstance(module, nn.Sequential | nn.ModuleList)
    }


def model_settings(model: nn.Module) -> dict[str, Any]:
    """A network whose outputs are stored: its layers, its mode and its weights."""
    return {"layers": layers_of(model), "training": model.training, "weights": digest(model.state_dict())}


def require_same_settings(where: Path, found: Mapping[str, Any], settings: Mapping[str, Any], advice: str) -> None:
    """Raise unless a folder or file was written with these settings; the message names what changed.

    >>> require_same_settings(Path("out"), {"method": {"n_steps": 8}}, {"method": {"n_steps": 16}}, "Choose another.")
    Traceback (most recent call last):
    axiograd.errors.StorageError: out was written with different settings: method.n_steps (there: 8, here: 16). ...
    """
    # As JSON gives it back: tuples are lists there.
    there, here = dict(_flat(found)), dict(_flat(json.loads(json.dumps(settings))))
    changed = [
        f"{name} (there: {there.get(name, 'nothing')}, here: {here.get(name, 'nothing')})"
        for name in there | here
        if there.get(name, "nothing") != here.get(name, "nothing")
    ]
    if changed:
        more = f"; and {len(changed) - _LISTED} more" if len(changed) > _LISTED else ""
        listed = "; ".join(changed[:_LISTED])
        raise StorageError(f"{where} was written with different settings: {listed}{more}. {advice}")


def _flat(settings: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings by dotted names; lists of numbers stay together."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            yield from _flat(value, f"{name}.{key}" if name else str(key))
    elif isinstance(settings, list) and any(isinstance(part, Mapping | list) for part in settings):
        for place, value in enumerate(settings):
            yield from _flat(value, f"{name}[{place}]")
    else:
        yield name, settings


# Progress


@contextmanager
def progress_bar(
    what: str, *, total: float | None = None, shown: bool | None = None, extra: str = "cli", counted: bool = True
) -> Iterator[Callable[..., None]]:
    """A bar on standard error: what is being done, how much of it, the time left, and a note.

    `shown=None` shows it on a terminal only. The function that it gives takes `advance`, or `completed`, and `total`,
    `description` and `note`.

    >>> with progress_bar("epochs", total=3, shown=False) as update:
    ...     update(advance=1, note="loss 0.5")
    """
    if not (sys.stderr.isatty() if shown is None else shown):
        yield lambda **_: None
        return
    progress = optional("rich.progress", extra, "a progress bar")
    console = optional("rich.console", extra, "a progress bar")
    count: Any = progress.MofNCompleteColumn() if counted else progress.TextColumn("{task.percentage:>3.0f} %")
    columns = (progress.TextColumn("{task.description}", markup=False), progress.BarColumn(), count)
    note = progress.TextColumn("{task.fields[note]}", markup=False)
    # A window of an hour: pieces may take minutes.
    with progress.Progress(
        *columns, progress.TimeRemainingColumn(), note, console=console.Console(stderr=True), speed_estimate_period=3600
    ) as drawn:
        task = drawn.add_task(what, total=total, note="")
        yield lambda **changes: drawn.update(task, **changes)
