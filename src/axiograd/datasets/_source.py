"""What a data set consists of, where it is looked for, and where to get it."""

import os
from dataclasses import dataclass
from pathlib import Path

from axiograd._locate import cache_home, find, search_path
from axiograd.errors import DataMissingError


@dataclass(frozen=True)
class DataSource:
    """The files of a data set, in a folder of the data root.

    >>> DataSource("Nothing", "nothing", ("a.csv",), "https://example.org", "MIT").locate("/nowhere") is None
    True
    """

    name: str
    folder: str
    files: tuple[str, ...]
    address: str
    licence: str
    notes: str = ""
    #: Folders outside the data root where a distribution puts the files.
    elsewhere: tuple[str, ...] = ()

    def looked_in(self, root: str | os.PathLike[str] | None = None) -> tuple[Path, ...]:
        """The folders that are searched, in this order."""
        return (*search_path(self.folder, root), *(Path(path) for path in self.elsewhere))

    def locate(self, root: str | os.PathLike[str] | None = None) -> Path | None:
        """The folder that holds all the files, or None."""
        return find(self.files, self.looked_in(root))

    def require(self, root: str | os.PathLike[str] | None = None) -> Path:
        """The folder that holds all the files, or DataMissingError with what to do."""
        path = self.locate(root)
        if path is None:
            looked = ", ".join(map(str, self.looked_in(root)))
            raise DataMissingError(
                f"{self.name}: {', '.join(self.files)} not found in {looked}. Get it from {self.address} "
                f"({self.licence}) and put it into {cache_home() / self.folder}, or set AXIOGRAD_DATA to the "
                f"folder that holds {self.folder}/."
            )
        return path
