"""`FILE.pt2`: a program of torch.export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from axiograd.errors import ConfigurationError, DataMissingError, InputError, StorageError
from axiograd.loading._libraries import first_line
from axiograd.loading.loaded import Loaded

#: Among the extra files of a .pt2 file: `axiograd export` wrote it, and this is what it says of itself.
EXPORT_CARD = "axiograd.json"


class Exported(nn.Module):
    """A program of `torch.export`, which has no modes."""

    def __init__(self, program: nn.Module, shape: Sequence[int | torch.SymInt] = ()) -> None:
        super().__init__()
        self.program = program
        #: Samples of every call, where the file takes no other number.
        self.samples = shape[0] if shape and isinstance(shape[0], int) else None
        if len(shape) > 1 and all(isinstance(n, int) for n in shape[1:]):
            self.input_shape = tuple(shape[1:])

    def train(self, mode: bool = True) -> Exported:
        """It stays in the mode that it was exported in."""
        self.training = mode
        return self

    def forward(self, *inputs: Any) -> Any:
        if self.samples is not None and len(inputs[0]) != self.samples:
            raise InputError(
                f"the model was exported for {self.samples} samples at a time, and is given {len(inputs[0])}: export "
                "it with dynamic_shapes=({0: torch.export.Dim.AUTO},)."
            )
        return self.program(*inputs)


def load(path: str) -> Loaded:
    """The program in the file."""
    if path.endswith(".onnx"):
        raise ConfigurationError(
            f"{path}: an ONNX file has no gradients here, so it can only be looked at: axiograd check {path}."
        )
    if not Path(path).is_file():
        raise DataMissingError(f"there is no file {path}.")
    try:
        program = torch.export.load(path, extra_files=(extra := {EXPORT_CARD: ""}))
    except Exception as error:
        raise StorageError(f"{path} is not a file of torch.export: {first_line(error)}.") from error
    if extra[EXPORT_CARD]:
        raise ConfigurationError(
            f"{path} answers with its attributions already, as `axiograd export` wrote it (axiograd check {path} says "
            "what it is): explain the model that it was made from."
        )
    given = [node for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    shape = given[0].meta["val"].shape if len(given) == 1 else ()
    return Loaded(path, Exported(program.module(), shape).eval(), path, trained=None)
