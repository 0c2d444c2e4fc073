"""Files that are either complete or not there, in a folder that one process at a time writes into."""

import errno
import os
import re
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from axiograd.errors import StorageError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}
#: Locks of the system are per process, so that threads need a list of their own.
_held: set[Path] = set()
_holding = threading.Lock()


@contextmanager
def replacing(target: Path, temporary: Path | None = None) -> Iterator[Path]:
    """A path beside the target, whose file takes the target's place once it is safe on the disk.

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
    """Write beside the target and rename, so that an interruption leaves the old file or none."""
    target = Path(path)
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as building:
            write_bytes(building, content)
    return target


def remove_leftovers(target: Path) -> None:
    """Remove what a process that was killed while it replaced the file has left; its lock is held by the caller."""
    for path in target.parent.glob(f".{target.name}.*"):
        if re.fullmatch("[0-9a-f]{8}", path.suffix[1:]):
            path.unlink(missing_ok=True)


@contextmanager
def writing(target: Path, safe: str = "") -> Iterator[None]:
    """Turn the system's errors into a `StorageError` that says what to do, and what is `safe` all the same."""
    try:
        yield
    except OSError as error:
        kept = f" {safe.rstrip('.')}." if safe else ""
        raise StorageError(f"Cannot write {str(target)!r}: {_reason(error)}{kept}") from error


def _reason(error: OSError) -> str:
    what = error.strerror or str(error)
    if error.errno in _FULL:
        return f"{what}. Make room on that disk and run again."
    if error.errno in _FORBIDDEN:
        return f"{what}. Choose a folder that is writable, or change its permissions."
    return f"{what}. Choose a folder that is writable."


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written or made, before the work and not after it; nothing is left there."""
    nearest = next((path for path in (folder, *folder.absolute().parents) if path.exists()), Path())
    if not nearest.is_dir():
        why = "is a file"
    elif not os.access(nearest, os.W_OK | os.X_OK):
        why = "is not writable"
    else:
        # Permissions do not tell everything: disks are mounted read-only, or full.
        probe = nearest / f".axiograd-{secrets.token_hex(4)}"
        try:
            probe.write_bytes(b"1")
        except OSError as error:
            why = f"is not writable ({error.strerror})"
        else:
            return
        finally:
            probe.unlink(missing_ok=True)
    raise StorageError(f"Cannot write to the folder {str(folder)!r}: {str(nearest)!r} {why}. Choose another one.")


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file, and come back when its bytes are on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Come back when a file's bytes, or the names in a folder, are on the disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open directories, and writes their entries by itself
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def alone(folder: Path, lock: str = ".lock") -> Iterator[None]:
    """Make the folder if need be, and refuse to enter it while another process or thread is writing there.

    Those who write different files of one folder name a lock each.

    The system holds the lock for the process, not for its children, and drops it when the process ends in any way.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name, alone(Path(name)):
    ...     with alone(Path(name)):
    ...         pass
    Traceback (most recent call last):
    axiograd.errors.StorageError: This process is already writing into ...
    """
    path = folder / lock
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        key = folder.resolve() / lock
    with _holding:
        # Before the file is opened: closing it again would drop the lock that this process has.
        if key in _held:
            raise StorageError(f"This process is already writing into {str(folder)!r}: wait for it, or stop it.")
        _held.add(key)
    try:
        with writing(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if not _lock(descriptor):
                raise StorageError(
                    f"Another process{_holder(descriptor)} is writing into {str(folder)!r}: wait for it, stop it, or "
                    "choose another folder."
                )
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()} {socket.gethostname()}".encode())
            yield
        finally:
            os.close(descriptor)
    finally:
        with _holding:
            _held.discard(key)


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


def _holder(descriptor: int) -> str:
    try:
        number, host = os.pread(descriptor, 200, 0).decode().split()
    except (OSError, ValueError):
        return ""
    return f" ({number} on {host})"
