"""Files that are either complete or not there."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from axiograd.errors import StorageError


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
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as building:
            write_bytes(building, content)
    except OSError as error:
        raise StorageError(
            f"Cannot write {str(target)!r}: {error.strerror}. Choose a folder that is writable."
        ) from error
    return target


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written or made, before the work and not after it; nothing is made yet."""
    nearest = next((path for path in (folder, *folder.parents) if path.exists()), Path())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        why = "is not writable" if nearest.is_dir() else "is a file"
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
