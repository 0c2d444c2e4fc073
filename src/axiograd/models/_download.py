"""One file from the web to disk: progress, resumed where it broke off, checked, in place only when whole."""

import contextlib
import http.client
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from axiograd._io import file_sha256
from axiograd.errors import ConfigurationError, DataMissingError, StorageError

if sys.platform != "win32":
    import fcntl

CHUNK = 1 << 20
PARTIAL, RANGE_NOT_SATISFIABLE = 206, 416

Advance = Callable[[int, int | None], None]


def download(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    check: Callable[[Path], object] | None = None,
    progress: bool = True,
    attempts: int = 3,
    pause: float = 1.0,
) -> Path:
    """Fetch `url` to `target`; an interrupted transfer leaves `target.part`, where the next call resumes.

    `check(path)` sees the whole file before it is put in place and raises if it is damaged.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"cannot download {url!r}: only http and https addresses.")
    target.parent.mkdir(parents=True, exist_ok=True)
    with alone(target.parent):
        # Another process may have fetched it while this one waited.
        if not target.exists():
            fetch(url, target, sha256, check, progress, attempts, pause)
    return target


def fetch(
    url: str,
    target: Path,
    sha256: str | None,
    check: Callable[[Path], object] | None,
    progress: bool,
    attempts: int,
    pause: float,
) -> None:
    """Transfer, with a few attempts, then check, then put in place."""
    part = target.with_name(target.name + ".part")
    with progress_bar(target.name, show=progress) as advance:
        for attempt in range(1, attempts + 1):
            try:
                transfer(url, part, advance)
                break
            except (OSError, http.client.HTTPException) as error:
                if attempt == attempts or not worth_retrying(error):
                    raise unreachable(url, target, part, error) from error
                time.sleep(pause * attempt)
    try:
        verify(part, url, sha256)
        if check is not None:
            check(part)
    except StorageError:
        part.unlink()
        validator_file(part).unlink(missing_ok=True)
        raise
    part.replace(target)
    validator_file(part).unlink(missing_ok=True)


def verify(part: Path, url: str, sha256: str | None) -> None:
    """StorageError unless the file has the SHA-256, where one is known."""
    if sha256 is not None and (found := file_sha256(part)) != sha256:
        raise StorageError(f"{url} has SHA-256 {found}, expected {sha256}; nothing was kept, try again.")


def transfer(url: str, part: Path, advance: Advance) -> None:
    """Append to `part` what is missing of `url`; IncompleteRead if the connection ends too early."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "axiograd"})  # noqa: S310  (scheme checked by caller)
    memory = validator_file(part)
    validator = memory.read_text() if memory.exists() else ""
    if have and validator:
        # If-Range: a file that has changed meanwhile is sent anew instead of being glued to the old half.
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", validator)
    else:
        have = 0
    with open_url(request, part) as response:
        if response.status != PARTIAL:
            have = 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length is not None else None
        memory.write_text(response.headers.get("ETag") or response.headers.get("Last-Modified") or "")
        with part.open("ab" if have else "wb") as file:
            advance(have, total)
            while chunk := response.read(CHUNK):
                file.write(chunk)
                have += len(chunk)
                advance(have, total)
    if total is not None and have != total:
        raise http.client.IncompleteRead(b"", total - have)


def open_url(request: urllib.request.Request, part: Path) -> Any:
    """The response; a partial file that has nothing left to ask for, or too much in it, is dropped."""
    try:
        return urllib.request.build_opener(WithinHttps).open(request, timeout=30)
    except urllib.error.HTTPError as error:
        if error.code == RANGE_NOT_SATISFIABLE:
            part.unlink()
        raise


class WithinHttps(urllib.request.HTTPRedirectHandler):
    """Follows a redirect to https only: elsewhere, whoever is on the way could put another file there."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if not newurl.startswith("https://"):
            raise ConfigurationError(f"{req.full_url} redirects to {newurl}, which is not https; nothing was fetched.")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def worth_retrying(error: Exception) -> bool:
    """Broken connections and busy servers pass; a wrong address or a full disk does not."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code == RANGE_NOT_SATISFIABLE or error.code >= http.client.INTERNAL_SERVER_ERROR
    return isinstance(error, urllib.error.URLError | ConnectionError | TimeoutError | http.client.HTTPException)


def unreachable(url: str, target: Path, part: Path, error: Exception) -> DataMissingError:
    """What to tell someone without a network: the address, and where the file belongs."""
    kept = part.stat().st_size if part.exists() else 0
    again = f" {kept} bytes are kept in {part}; the same call resumes there." if kept else ""
    return DataMissingError(
        f"could not download {url}: {error}.{again} Or fetch that address by other means and put the file at {target}"
    )


def validator_file(part: Path) -> Path:
    """Where the server's ETag for a partial file is kept."""
    return part.with_name(part.name + ".etag")


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let one process at a time write into a folder; the lock ends with its process (not on Windows)."""
    if sys.platform == "win32":
        yield
        return
    # The folder itself is locked: a lock file would have to be removed, and removing it is a race.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def progress_bar(name: str, *, show: bool) -> Iterator[Advance]:
    """A rich progress bar with speed and remaining time; nothing where rich is not installed."""
    if show and os.environ.get("AXIOGRAD_NO_PROGRESS") is None:
        try:
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )
        except ImportError:
            show = False
    else:
        show = False
    if not show:
        yield lambda _have, _total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn()) as bar:
        task = bar.add_task(name, total=None)
        yield lambda have, total: bar.update(task, completed=have, total=total)
