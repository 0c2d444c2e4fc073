"""Files that are either complete or not there."""

import os
import tempfile
from pathlib import Path

from axiograd.errors import StorageError


def write_atomically(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write beside the target and rename, so that an interruption leaves the old file or none."""
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise StorageError(
            f"Cannot write {str(target)!r}: {error.strerror}. Choose a folder that is writable."
        ) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(target)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise StorageError(f"Cannot write {str(target)!r}: {error.strerror}.") from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return target


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
