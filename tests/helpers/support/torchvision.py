"""torchvision's model definitions for tests and benchmarks, without installing torchvision for anybody else.

Its compiled operators are not needed for classification models, so a wheel in a cache folder will do. It is on
`sys.path` only while it is imported; it stays in `sys.modules`, where pickle looks for classes, and transformers,
lightning and torchmetrics import well beside it because the operators that they would trip over are declared.
"""

import importlib
import importlib.util
import os
import re
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType

import torch


class TorchvisionMissingError(RuntimeError):
    """torchvision is neither installed nor to be had."""


def cache_folder() -> Path:
    """Where what tests download is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "axiograd"


def _minor() -> int:
    """torchvision 0.28 was made for torch 2.13, and so on."""
    return int(torch.__version__.split(".")[1]) + 15


def _cache() -> Path:
    return cache_folder() / f"torchvision-0.{_minor()}"


def _download(folder: Path) -> None:
    if (folder / "torchvision").is_dir():
        return
    requirement = f"torchvision<0.{_minor() + 1}"  # torchvision follows some weeks after a new torch
    temporary = folder.with_name(f"{folder.name}.{os.getpid()}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(temporary), requirement]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise TorchvisionMissingError(f"pip could not fetch {requirement}: {done.stderr.strip()[-300:]}")
    try:
        temporary.rename(folder)
    except OSError:  # another process was first
        if not (folder / "torchvision").is_dir():
            raise


def _purge() -> None:
    for name in [n for n in sys.modules if n == "torchvision" or n.startswith("torchvision.")]:
        del sys.modules[name]


_libraries: list[torch.library.Library] = []


def _import() -> ModuleType:
    """Import the models; an operator that the wheel's extension lacks here is declared, never called."""
    for _ in range(20):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return importlib.import_module("torchvision.models")
        except RuntimeError as error:
            missing = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if missing is None:
                raise
            _purge()
            library = torch.library.Library("torchvision", "FRAGMENT")
            schema = "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            library.define(schema if missing[1] == "nms" else f"{missing[1]}(Tensor x) -> Tensor")
            _libraries.append(library)
    raise TorchvisionMissingError("torchvision keeps asking for operators")


@cache
def torchvision_models() -> ModuleType:
    """`torchvision.models`, from an installed torchvision or a wheel in the cache folder."""
    if importlib.util.find_spec("torchvision") is not None:
        return _import()
    folder = _cache()
    folder.parent.mkdir(parents=True, exist_ok=True)
    _download(folder)
    sys.path.insert(0, str(folder))
    try:
        return _import()
    finally:
        sys.path.remove(str(folder))
