"""Which data sets are on this machine, and where to get the others."""

from dataclasses import dataclass
from pathlib import Path

from axiograd.datasets._cifar10 import BINARY, FOLDERS
from axiograd.datasets._imagenet import IMAGENET_FOLDERS, SAMPLE
from axiograd.datasets._mnist import FASHION_MNIST, MNIST
from axiograd.datasets._nhanes import AUTHORS, RECONSTRUCTED
from axiograd.datasets._source import DataSource
from axiograd.datasets._tiny_imagenet import TINY_20, TINY_200
from axiograd.datasets.tensors import Root

SOURCES: dict[str, DataSource] = {
    "nhanes (authors)": AUTHORS,
    "nhanes (reconstructed)": RECONSTRUCTED,
    "mnist": MNIST,
    "fashion_mnist": FASHION_MNIST,
    "cifar10": FOLDERS,
    "cifar10 (binary)": BINARY,
    "tiny_imagenet": TINY_20,
    "tiny_imagenet (200)": TINY_200,
    "imagenet": IMAGENET_FOLDERS,
    "imagenet_sample": SAMPLE,
}
#: Made from another set, or from nothing: the set that must be there.
DERIVED = {"decoy": "fashion_mnist", "color_mnist": "mnist"}


@dataclass(frozen=True)
class Entry:
    """One data set: whether it is here, where it was looked for, where to get it, and under which licence."""

    loader: str
    name: str
    present: bool
    path: Path | None
    looked_in: tuple[Path, ...]
    address: str
    licence: str
    notes: str


def catalogue(root: Root = None) -> tuple[Entry, ...]:
    """All data sets, those that need no download last.

    >>> catalogue()[-1].loader, catalogue()[-1].present
    ('shapes', True)
    """
    entries = {loader: entry(loader, source, root) for loader, source in SOURCES.items()}
    for loader, base in DERIVED.items():
        of = entries[base]
        note = f"made from {base}"
        entries[loader] = Entry(loader, loader, of.present, of.path, of.looked_in, of.address, of.licence, note)
    entries["shapes"] = Entry("shapes", "shapes", True, None, (), "made by axiograd", "Apache-2.0", "procedural")
    return tuple(entries.values())


def entry(loader: str, source: DataSource, root: Root) -> Entry:
    """The state of one source."""
    path = source.locate(root)
    looked = source.looked_in(root)
    return Entry(loader, source.name, path is not None, path, looked, source.address, source.licence, source.notes)
