"""Where files are looked for: `root=`, then AXIOGRAD_DATA, then the cache."""

import os
from collections.abc import Iterable
from pathlib import Path


def cache_home() -> Path:
    """The folder for what is downloaded: $XDG_CACHE_HOME/axiograd, by default ~/.cache/axiograd."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "axiograd"


def search_path(folder: str, root: str | os.PathLike[str] | None = None) -> tuple[Path, ...]:
    """The folders in which the files of `folder` may lie, best first.

    A root may be that folder itself or its parent.

    >>> [str(path) for path in search_path("mnist", "/data")][:2]
    ['/data/mnist', '/data']
    """
    paths: list[Path] = []
    if root is not None:
        paths += [Path(root) / folder, Path(root)]
    if shared := os.environ.get("AXIOGRAD_DATA"):
        paths.append(Path(shared).absolute() / folder)
    return (*paths, cache_home() / folder)


def find(files: Iterable[str], folders: Iterable[Path]) -> Path | None:
    """The first folder that holds all the files, or None."""
    wanted = tuple(files)
    return next((folder for folder in folders if all((folder / file).exists() for file in wanted)), None)
