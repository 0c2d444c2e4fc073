"""Trained weights by name, their download, and state dicts from files, without executing what is in them."""

import http.client
import os
import pickle
import tomllib
import urllib.error
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor, nn

from axiograd._io import file_sha256, load_tensors
from axiograd._locate import cache_home, find, search_path
from axiograd.errors import ConfigurationError, DataMissingError, StorageError

Root = str | os.PathLike[str] | None


@dataclass(frozen=True)
class Weights:
    """One file of trained weights for one model.

    >>> find_weights("xalexnet", "paper").file
    'xalexnet_model_best.pth.tar'
    """

    model: str
    name: str
    file: str
    notes: str
    base_url: str | None = None
    sha256: str | None = None
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str | None:
        """The address of the file; AXIOGRAD_WEIGHTS_URL replaces everything before the file name."""
        base = os.environ.get("AXIOGRAD_WEIGHTS_URL") or self.base_url
        return None if base is None else base.rstrip("/") + "/" + self.file

    def locate(self, root: Root = None) -> Path | None:
        """The file on this machine, or None."""
        folder = find([self.file], search_path("weights", root))
        return None if folder is None else folder / self.file


@cache
def _known() -> tuple[Weights, ...]:
    content = tomllib.loads(resources.files("axiograd.models").joinpath("weights.toml").read_text("utf-8"))
    return tuple(Weights(**values) for values in content["weights"])


def list_weights(model: str | None = None) -> tuple[Weights, ...]:
    """All known weights, or those of one model.

    >>> [weights.name for weights in list_weights("squeezenet1_1")]
    ['imagenet']
    """
    return tuple(weights for weights in _known() if model in (None, weights.model))


def find_weights(model: str, name: str) -> Weights:
    """The weights of a model by their name, by their file name, or by `"default"`.

    >>> find_weights("resnet18", "default").name
    'tiny_imagenet'
    """
    known = list_weights(model)
    for weights in known:
        if name in (weights.name, weights.file, "default"):
            return weights
    names = ", ".join(repr(weights.name) for weights in known) or "none"
    raise ConfigurationError(
        f"no weights {name!r} for {model!r}, and no file of that name; known for this model: {names}."
    )


def fetch_weights(model: str, name: str = "default", *, root: Root = None, progress: bool = True) -> Path:
    """The path of a weights file, downloaded into `root` (default: the cache) unless it is here already.

    Its address is the published one, or AXIOGRAD_WEIGHTS_URL + file name.
    """
    weights = find_weights(model, name)
    if (path := weights.locate(root)) is not None:
        return path
    address = weights.url
    if address is None:
        raise _missing(weights, root)
    target = _target(weights, root)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Under a name of its own until it is whole and readable; another process may be fetching the same file.
    unchecked = target.with_name(f"unchecked-{os.getpid()}-{target.name}")
    try:
        torch.hub.download_url_to_file(address, str(unchecked), weights.sha256, progress)
        read_state_dict(unchecked)
        unchecked.replace(target)
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is the server's answer, with its connection
        raise DataMissingError(
            f"could not download {address}: {error}. Or fetch that address by other means and put the file at {target}."
        ) from error
    except RuntimeError as error:  # torch.hub's, for another checksum
        raise StorageError(f"{address} does not match the published file: {error}; nothing was kept.") from error
    finally:
        unchecked.unlink(missing_ok=True)
    return target


def require_weights(model: str, name: str, *, root: Root = None) -> Path:
    """The path of a weights file on this machine, checked where its SHA-256 is known; never downloads."""
    weights = find_weights(model, name)
    path = weights.locate(root)
    if path is None:
        raise _missing(weights, root)
    if weights.sha256 is not None and (found := file_sha256(path)) != weights.sha256:
        raise ConfigurationError(
            f"{path} has SHA-256 {found}, but {weights.name!r} of {model!r} has {weights.sha256}; "
            "replace the file, or pass its path as weights= if it is meant to be another one."
        )
    return path


def _target(weights: Weights, root: Root) -> Path:
    return (Path(root) if root is not None else cache_home() / "weights") / weights.file


def _missing(weights: Weights, root: Root) -> DataMissingError:
    """What is missing, its address, and where to put it."""
    looked = ", ".join(str(folder) for folder in search_path("weights", root))
    target = _target(weights, root)
    if weights.url is None:
        how = f"put the file at {target}, or set AXIOGRAD_WEIGHTS_URL to where it is served"
    else:
        how = f"pass download=True (in the command: --download), or fetch {weights.url} and put it at {target}"
    return DataMissingError(
        f"weights {weights.name!r} of {weights.model!r} ({weights.file}) are not in {looked}: {how}."
    )


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
    if path.suffix == ".safetensors":
        return {bare_key(key): value for key, value in load_tensors(path).items()}
    content: Any
    try:
        if path.suffix == ".npz":
            # A file of our own: numpy leaves the one that it opens open where it is damaged.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                content = {key: torch.from_numpy(np.ascontiguousarray(arrays[key])) for key in arrays.files}
        else:
            with torch.serialization.safe_globals(NUMPY_SCALARS):
                content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise StorageError(
            f"{path} is damaged, or holds more than tensors; it was not executed. Save only tensors: "
            "torch.save(model.state_dict(), …)."
        ) from error
    except (EOFError, LookupError, AttributeError, OSError, RuntimeError, TypeError, ValueError, BadZipFile) as error:
        raise StorageError(f"{path} is not a complete file of plain tensors: {str(error).rstrip('.')}.") from error
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


def load_into(model: nn.Module, state: Mapping[str, Tensor], *, model_name: str, source: str) -> None:
    """Load a state dict strictly; what does not fit is listed, with what to do."""
    unexpected = state.keys() - model.state_dict().keys()
    try:
        model.load_state_dict(dict(state))
    except RuntimeError as error:
        _, *lines = str(error).splitlines()
        advice = "Are these the weights of another model, or was it trained with other num_classes or settings?"
        if unexpected and all("bias" in key or key.endswith("scale") for key in unexpected):
            advice = (
                "Load weights with biases into the regular model and convert it with axiograd.to_xdnn(model, examples)."
            )
        listed = " ".join(line.strip()[:300] for line in lines[:5])
        raise ConfigurationError(f"{source} does not fit {model_name!r}. {listed} {advice}") from error
