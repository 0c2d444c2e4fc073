"""State dicts from files, never executing what is in them, and into a model, saying what does not fit."""

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from axiograd._io import load_tensors
from axiograd.errors import ConfigurationError, DataMissingError, StorageError

SHOWN = 5

#: Checkpoints hold best accuracies as NumPy scalars; these rebuild a number and nothing else.
NUMPY_SCALARS: list[Any] = [
    np.float64(0).__reduce__()[0],
    np.dtype,
    np.dtypes.Float64DType,
    np.dtypes.Float32DType,
    np.dtypes.Int64DType,
]


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a `.pth`, `.pth.tar`, `.safetensors` or `.npz` file, by the keys of the bare model.

    `{'state_dict': …}` is opened, and every `module` that DataParallel put into a key is taken out.
    """
    path = Path(path)
    if not path.is_file():
        raise DataMissingError(f"no weights at {path}.")
    # A download is checked under the name that it has until it is complete.
    suffix = Path(path.name.removesuffix(".part")).suffix
    if suffix == ".npz":
        return read_npz(path)
    if suffix == ".safetensors":
        return {bare_key(key): value for key, value in load_tensors(path).items()}
    try:
        with torch.serialization.safe_globals(NUMPY_SCALARS):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise StorageError(
            f"{path} is damaged, or holds more than tensors; it was not executed. "
            f"torch.load(weights_only=True) said: {str(error).splitlines()[0].rstrip('.')}."
        ) from error
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise StorageError(f"{path} is not a complete checkpoint: {str(error).rstrip('.')}.") from error
    return unwrap(content, path)


def unwrap(content: Any, path: Path) -> dict[str, Tensor]:
    """The state dict in a checkpoint, with the keys of the bare model.

    >>> unwrap({"state_dict": {"features.module.0.weight": torch.ones(1)}}, Path("x.pth.tar"))
    {'features.0.weight': tensor([1.])}
    """
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise StorageError(f"{path} holds a {type(content).__name__}, not a state dict of tensors.")
    return {bare_key(key): value for key, value in content.items()}


def bare_key(key: str) -> str:
    """A key without the `module` segments of DataParallel.

    >>> bare_key("module.layer1.0.bias1a")
    'layer1.0.bias1a'
    """
    return ".".join(part for part in key.split(".") if part != "module")


def read_npz(path: Path) -> dict[str, Tensor]:
    """The arrays of an NPZ file; pickled objects are refused."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {key: torch.from_numpy(np.ascontiguousarray(arrays[key])) for key in arrays.files}
    except (OSError, EOFError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise StorageError(f"{path} is not a complete NPZ file of plain arrays: {str(error).rstrip('.')}.") from error


def load_into(model: nn.Module, state: Mapping[str, Tensor], *, model_name: str, source: str) -> None:
    """Load a state dict strictly; what does not fit is listed, with what to do."""
    own = model.state_dict()
    shapes = [
        f"{key}: file {tuple(state[key].shape)}, model {tuple(own[key].shape)}"
        for key in own
        if key in state and state[key].shape != own[key].shape
    ]
    if shapes:
        raise ConfigurationError(
            f"{source} does not fit {model_name!r}: {shorten(shapes)}; "
            "give the num_classes, in_channels and configuration that the weights were trained with."
        )
    # Not strict, so that a module's own hooks have dropped what they accept before the keys are compared.
    missing, unexpected = model.load_state_dict(dict(state), strict=False)
    if missing or unexpected:
        additive = [key for key in unexpected if "bias" in key or key.endswith("scale")]
        advice = "are these the weights of another model?"
        if unexpected and additive == unexpected and not missing:
            advice = "load weights with biases into the regular model and convert it with axiograd.to_xdnn"
        raise ConfigurationError(
            f"{source} does not fit {model_name!r}: missing {shorten(missing)}; "
            f"unexpected {shorten(unexpected)}; {advice}."
        )


def shorten(items: list[str]) -> str:
    """The first few of a list, and how many more there are.

    >>> shorten(["a", "b"])
    'a, b'
    """
    if not items:
        return "none"
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return ", ".join(items[:SHOWN]) + more
