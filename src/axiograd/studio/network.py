"""The network of a session: where it comes from, and how it is rebuilt from a file once it has become an X-DNN."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from axiograd._io import load_tensors, read_header, save_tensors
from axiograd.errors import StorageError
from axiograd.homogeneity import calibrated_layout, to_xdnn

KEY = "axiograd.studio"


@dataclass(frozen=True)
class Origin:
    """Who makes the network, and how a line of Python says so: what to import, and what to call."""

    #: The network with its weights.
    make: Callable[[], nn.Module]
    #: The same architecture, whatever its weights.
    bare: Callable[[], nn.Module]
    imports: str = ""
    call: str = ""
    name: str = "model"


def save(path: Path, model: nn.Module, how: str, shape: tuple[int, ...]) -> None:
    """Weights of an X-DNN, with the conversion that made it and the shape of an input."""
    save_tensors(path, model.state_dict(), {KEY: json.dumps({"how": how, "shape": list(shape)})})


def rebuild(made: nn.Module, path: str | Path) -> nn.Module:
    """The network that `save` wrote, from the architecture that the session began with."""
    file = Path(path)
    tensors, made_by = load_tensors(file), json.loads(read_header(file)[KEY])
    example = torch.rand(2, *made_by["shape"], generator=torch.Generator().manual_seed(0))
    if made_by["how"] == "calibrate":
        model: nn.Module = calibrated_layout(made.eval(), example)
    else:
        model = to_xdnn(made.eval(), example, how=made_by["how"]).model
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise StorageError(f"{file} does not fit the network: {str(error).splitlines()[0]}.") from error
    return model.eval()
