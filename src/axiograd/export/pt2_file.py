"""torch.export's own files, which PyTorch loads without axiograd."""

from __future__ import annotations

import hashlib
import io
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from axiograd.errors import StorageError
from axiograd.export.card import Card, Signature
from axiograd.export.joint import Joint
from axiograd.export.subject import Runner
from axiograd.homogeneity.program import untouched
from axiograd.loading.libraries import EXPORT_CARD

_DIGEST = "axiograd.sha256"


def to_bytes(joint: Joint, card: Card) -> bytes:
    """The file, with the card and the hash of everything else among its extra files."""
    content = _saved(joint, {EXPORT_CARD: card.to_json()})
    return _saved(joint, {EXPORT_CARD: card.to_json(), _DIGEST: _digest(content)})


def _saved(joint: Joint, extra: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with untouched(joint.program.graph_module):
        warnings.simplefilter("ignore")
        torch.export.save(joint.program, buffer, extra_files=extra)
    return buffer.getvalue()


def _digest(content: bytes) -> str:
    """Over the names and bytes of all members but the hash itself, whose folder the archive names after the file."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in sorted(archive.namelist()):
            inner = name.partition("/")[2]
            if not inner.endswith(_DIGEST) and inner != ".data/serialization_id":
                digest.update(f"{inner}\n".encode())
                digest.update(archive.read(name))
    return digest.hexdigest()


def read_pt2(path: Path) -> Card:
    """The card of a file, and whether the file is unmodified."""
    content = path.read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            said = {name.rpartition("/")[2]: name for name in archive.namelist()}
            if EXPORT_CARD not in said:
                raise StorageError(f"{path} was not written by axiograd: it says nothing about a certificate.")
            card = archive.read(said[EXPORT_CARD]).decode()
            written = archive.read(said[_DIGEST]).decode() if _DIGEST in said else ""
        intact = _digest(content) == written
    except (zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise StorageError(f"{path} is not a .pt2 file, or is damaged: {error}.") from error
    return Card.from_json(card, intact=intact)


def signatures(joint: Joint) -> tuple[Signature, Signature]:
    """Names, dtypes and sizes of inputs and of outputs."""
    values = {node.name: node.meta["val"] for node in joint.program.graph.nodes if "val" in node.meta}
    of_program = joint.program.graph_signature
    inputs = [values[str(name)] for name in of_program.user_inputs]
    symbols = {
        str(value.shape[i]): name for value, free in zip(inputs, joint.dynamic, strict=True) for i, name in free.items()
    }

    def of(names: tuple[str, ...], tensors: list[Tensor]) -> Signature:
        return tuple(
            (
                name,
                str(tensor.dtype).removeprefix("torch."),
                _sizes(name, tensor, symbols),
            )
            for name, tensor in zip(names, tensors, strict=True)
        )

    return of(joint.inputs, inputs), of(joint.outputs, [values[str(name)] for name in of_program.user_outputs])


def _sizes(name: str, tensor: Tensor, symbols: Mapping[str, str]) -> tuple[int | str, ...]:
    sizes: list[Any] = list(tensor.shape)
    return tuple(s if isinstance(s, int) else symbols.get(str(s), f"{name}_{i}") for i, s in enumerate(sizes))


def runner(joint: Joint, content: bytes) -> Runner:
    """Run a file's bytes as whoever loads them would."""
    with untouched(joint.program.graph_module):
        warnings.simplefilter("ignore")
        module = torch.export.load(io.BytesIO(content)).module()

    def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        with torch.no_grad():
            found = module(*(inputs[name] for name in joint.inputs))
        return dict(zip(joint.outputs, found, strict=True))

    return run
