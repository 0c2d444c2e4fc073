"""NHANES I: survey answers and laboratory values, and who was alive fifteen years later."""

import csv
import gzip
import hashlib
import io
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from axiograd.datasets._source import DataSource
from axiograd.datasets.tensors import Root, TensorData, check_choice
from axiograd.errors import DataMissingError, StorageError

#: Git's name for the authors' feature file.
AUTHORS_BLOB = "5dd8543ad05a7b0d39173bc1080b6e6f6d76efa3"

AUTHORS = DataSource(
    "NHANES I (the authors' file)",
    "nhanes",
    ("X_sparsity.csv", "y_sparsity.npy"),
    "https://github.com/visinf/fast-axiomatic-attribution, folder sparsity",
    "US government, public use",
    "13,442 subjects × 118 features, as in the paper; checked by its git blob id",
)
RECONSTRUCTED = DataSource(
    "reconstructed NHANES I",
    "nhanes",
    ("nhanes_reconstructed.csv.gz",),
    "https://wwwn.cdc.gov/nchs/nhanes/nhanes1/",
    "US government, public use",
    "13,315 subjects × 106 features, rebuilt from the public tables",
)


def nhanes(root: Root = None, *, source: Literal["auto", "authors", "reconstructed"] = "auto") -> TensorData:
    """NHANES I: float64 inputs, NaN where a value is missing, target 1 for a survivor; `names` of features.

    `"auto"` takes the authors' file where it is given and the reconstructed one otherwise; `name` says which.
    """
    check_choice("source", source, ("auto", "authors", "reconstructed"))
    if source == "authors" or (source == "auto" and AUTHORS.locate(root) is not None):
        return read_authors(AUTHORS.require(root))
    if source == "auto" and RECONSTRUCTED.locate(root) is None:
        raise DataMissingError(f"{missing(AUTHORS, root)} Or: {missing(RECONSTRUCTED, root)}.")
    return read_reconstructed(RECONSTRUCTED.require(root) / RECONSTRUCTED.files[0])


def missing(source: DataSource, root: Root) -> str:
    """The message of the error that this source raises."""
    try:
        source.require(root)
    except DataMissingError as error:
        return str(error)
    return ""


def read_authors(folder: Path) -> TensorData:
    """The authors' features and labels; StorageError if the file is not byte for byte theirs."""
    path = folder / "X_sparsity.csv"
    content = path.read_bytes()
    if (found := git_blob_id(content)) != AUTHORS_BLOB:
        raise StorageError(f"{path} has git blob id {found}, the authors' file has {AUTHORS_BLOB}; download it again.")
    names, rows = read_table(content.decode(), path)
    labels = np.load(folder / "y_sparsity.npy", allow_pickle=False)
    # The first column is the row's index.
    return TensorData(torch.from_numpy(rows[:, 1:]), torch.from_numpy(labels).double(), "NHANES I", names[1:])


def read_reconstructed(path: Path) -> TensorData:
    """Columns seqn, y_survived15, then the features."""
    try:
        text = gzip.decompress(path.read_bytes()).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} is damaged: {str(error).rstrip('.')}.") from error
    names, rows = read_table(text, path)
    if names[:2] != ("seqn", "y_survived15"):
        raise StorageError(f"{path} begins with the columns {names[:2]}, expected seqn, y_survived15.")
    inputs, targets = torch.from_numpy(rows[:, 2:].copy()), torch.from_numpy(rows[:, 1].copy())
    return TensorData(inputs, targets, RECONSTRUCTED.name, names[2:])


def read_table(text: str, path: Path) -> tuple[tuple[str, ...], np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    """The header and the numbers of a CSV text, NaN for an empty cell.

    >>> read_table("a,b\\n1,\\nTrue,2.5\\n", Path("x.csv"))
    (('a', 'b'), array([[1. , nan], [1. , 2.5]]))
    """
    words = {"": np.nan, "True": 1.0, "False": 0.0}
    reader = csv.reader(io.StringIO(text))
    header = tuple(next(reader))
    try:
        rows = [[words[cell] if cell in words else float(cell) for cell in row] for row in reader]
        return header, np.array(rows, dtype=np.float64).reshape(-1, len(header))
    except ValueError as error:
        raise StorageError(f"{path}, line {reader.line_num}: {str(error).rstrip('.')}.") from error


def git_blob_id(content: bytes) -> str:
    """SHA-1 of "blob <size>\\\\0" and the content.

    >>> git_blob_id(b"hello\\n")
    'ce013625030ba8dba906f756967f9e9ca394464a'
    """
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
