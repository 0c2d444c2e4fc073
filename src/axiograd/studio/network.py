"""The network of a session: where it comes from, how it became an X-DNN, and how it is rebuilt from a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from axiograd._io import load_tensors, read_header, save_tensors
from axiograd.errors import AxiogradError, ConversionError, StorageError
from axiograd.homogeneity import calibrated_layout, certify, to_xdnn
from axiograd.studio.survey import Between

KEY = "axiograd.studio"


@dataclass(frozen=True)
class Origin:
    """Who makes the network, and how a line of Python says so: what to import, and what to call."""

    #: The network with its weights; it may show how far it is.
    make: Callable[[Between], nn.Module]
    #: The same architecture, whatever its weights.
    bare: Callable[[], nn.Module]
    imports: str = ""
    call: str = ""
    name: str = "model"


@dataclass(frozen=True)
class Start:
    """An X-DNN, by which way it became one ("as it was", "strip", "calibrate" or "lift"), and what was tried."""

    model: nn.Module
    how: str
    words: str


def become_xdnn(model: nn.Module, example: Tensor, calibration: Tensor) -> Start:
    """The model itself if it is certified; else calibrated, stripped or lifted, the first of these that is proved."""
    model.eval()
    certificate = certify(model, example)
    if certificate.ok:
        return Start(model, "as it was", "It is an X-DNN as it is.")
    reasons: list[str] = []
    ways: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("calibrate", lambda: to_xdnn(model, example, calibration=calibration, how="calibrate")),
        ("strip", lambda: to_xdnn(model, example, how="strip")),
        ("lift", lambda: to_xdnn(model, example, how="lift")),
    )
    for how, convert in ways:
        try:
            conversion = convert()
        except (AxiogradError, RuntimeError) as error:
            reasons.append(f"{how}: {str(error).splitlines()[0]}")
            continue
        first = str(conversion).splitlines()[0]
        return Start(conversion.model.eval(), how, f"It was not an X-DNN and was converted. {first}.")
    raise ConversionError(f"the model is not an X-DNN and cannot be made one. {' '.join(reasons)}")


def save(path: Path, model: nn.Module, how: str, shape: tuple[int, ...]) -> None:
    """Weights, with how to rebuild what they belong to."""
    save_tensors(path, model.state_dict(), {KEY: json.dumps({"how": how, "shape": list(shape)})})


def header(path: Path) -> tuple[str, tuple[int, ...]]:
    """How the network in a file became an X-DNN, and the shape of one input."""
    try:
        found = json.loads(read_header(path)[KEY])
        return str(found["how"]), tuple(int(size) for size in found["shape"])
    except (KeyError, ValueError, TypeError, StorageError) as error:
        raise StorageError(f"{path} was not kept by the studio: {error!r}.") from error


def rebuild(made: nn.Module, path: str | Path) -> nn.Module:
    """The network that `save` wrote, from the architecture that the session began with."""
    file = Path(path)
    tensors = load_tensors(file)
    how, shape = header(file)
    example = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    model: nn.Module = made.eval()
    if how == "calibrate":
        model = calibrated_layout(model, example)
    elif how != "as it was":
        model = to_xdnn(model, example, how="lift" if how == "lift" else "strip").model
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise StorageError(f"{file} does not fit the network: {str(error).splitlines()[0]}.") from error
    return model.eval()
