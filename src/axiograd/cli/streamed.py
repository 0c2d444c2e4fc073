"""A safetensors file that grows sample by sample, with one sample in memory."""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import torch
from torch import Tensor

from axiograd._io import replacing, writing
from axiograd.errors import InputError

#: safetensors' names of torch's types.
_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass
class _Column:
    """One name: its samples one after the other in a file, and what they are."""

    file: IO[bytes]
    dtype: torch.dtype
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    size: int = 0


class StreamedTensors:
    """Tensors that are stacked on disk as they come; `write` makes one safetensors file of them.

    Samples of one shape become one tensor [samples, …]; where shapes differ, each is stored as name/key.

    >>> with StreamedTensors() as stream, tempfile.TemporaryDirectory() as folder:
    ...     for i in range(3):
    ...         stream.add(str(i), {"x": torch.full((2,), float(i))})
    ...     path = stream.write(Path(folder) / "a.safetensors", {"by": "me"})
    ...     from safetensors.torch import load_file
    ...     load_file(path)["x"].tolist()
    [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
    """

    def __init__(self) -> None:
        self._columns: dict[str, _Column] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for column in self._columns.values():
            column.file.close()

    def add(self, key: str, tensors: Mapping[str, Tensor]) -> None:
        """One sample: a tensor for each name, the same names every time."""
        for name, tensor in tensors.items():
            if name not in self._columns:
                self._columns[name] = _Column(tempfile.TemporaryFile(), tensor.dtype)  # noqa: SIM115
            column = self._columns[name]
            if tensor.dtype != column.dtype or tensor.dtype not in _TYPES:
                raise InputError(f"{name}: a sample of {tensor.dtype} after samples of {column.dtype}.")
            data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            column.file.write(data)
            column.shapes.append(tuple(tensor.shape))
            column.keys.append(key)
            column.size += len(data)

    def write(self, path: Path, about: Mapping[str, str]) -> Path:
        """The file, whole or not at all."""
        header: dict[str, Any] = {"__metadata__": dict(about)}
        at = 0
        # The widest types first, so that every number stands where its type may.
        ordered = dict(sorted(self._columns.items(), key=lambda item: -item[1].dtype.itemsize))
        for name, column in ordered.items():
            kind = _TYPES[column.dtype]
            if len(set(column.shapes)) == 1:
                shape = [len(column.shapes), *column.shapes[0]]
                header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + column.size]}
            else:
                start = at
                for key, shape_ in zip(column.keys, column.shapes, strict=True):
                    end = start + column.dtype.itemsize * torch.Size(shape_).numel()
                    header[f"{name}/{key}"] = {"dtype": kind, "shape": list(shape_), "data_offsets": [start, end]}
                    start = end
            at += column.size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as building, building.open("wb") as out:
                out.write(struct.pack("<Q", len(text)) + text)
                for column in ordered.values():
                    column.file.seek(0)
                    shutil.copyfileobj(column.file, out)
        return path
