"""Tensors on disk as safetensors, which cannot hold code, with checksums."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from axiograd._extras import optional
from axiograd.errors import StorageError
from axiograd.runs.files import replacing, write_bytes


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
    with replacing(path, path.with_name(f"tmp-{path.name}")) as building:
        write_bytes(building, data)
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
                raise StorageError(f"{path} ({len(data)} bytes) does not have the checksum that it was written with.")
            found = library.torch.load(data)
    # In the order of names: safetensors gives another one in each process, and ranks must go through them together.
    return dict(sorted(found.items()))


def read_header(path: Path) -> dict[str, str]:
    """What a file says of itself beside its tensors."""
    library = safetensors(f"reading {path.name}")
    with _reading(path), library.safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (safetensors().SafetensorError, OSError) as error:
        raise StorageError(f"{path} is damaged, or is not a safetensors file: {str(error).rstrip('.')}.") from error


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
