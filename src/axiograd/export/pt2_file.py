"""torch.export's own files, which PyTorch loads without axiograd."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from axiograd.errors import StorageError
from axiograd.export.card import KEY, Card
from axiograd.export.checking import Runner
from axiograd.export.joint import Joint
from axiograd.homogeneity.program import untouched

_MEMBER = f"{KEY}.json"


def to_bytes(joint: Joint, card: Card) -> bytes:
    """The file, with the card among its extra files."""
    buffer = io.BytesIO()
    with untouched(joint.graph):
        warnings.simplefilter("ignore")
        torch.export.save(joint.program, buffer, extra_files={_MEMBER: card.to_json()})
    return buffer.getvalue()


def read_pt2(path: Path) -> Card:
    """The card of a file."""
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(f"/{_MEMBER}"):
                    return Card.from_json(archive.read(name).decode())
    except (zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise StorageError(f"{path} is not a .pt2 file, or is damaged: {error}.") from error
    raise StorageError(f"{path} was not written by axiograd: it has no certificate.")


def runner(joint: Joint) -> Runner:
    """Run a program as a user of the file would."""
    module = joint.program.module()
    names = [name for name, *_ in joint.outputs]

    def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        with torch.no_grad():
            return dict(zip(names, module(*inputs.values()), strict=True))

    return run
