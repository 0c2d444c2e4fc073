"""Files that are either complete or not there."""

import os
import secrets
from pathlib import Path

from axiograd.errors import StorageError


def write_atomically(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write beside the target and rename, so that an interruption leaves the old file or none."""
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Not mkstemp, whose files only their owner may read.
        beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as error:
        raise StorageError(
            f"Cannot write {str(target)!r}: {error.strerror}. Choose a folder that is writable."
        ) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise StorageError(f"Cannot write {str(target)!r}: {error.strerror}.") from error
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return target
