"""torchvision's classification architectures as if they had been trained, and a process of its own for each.

Fresh networks have biases of zero and statistics of (0, 1), as if half of them were homogeneous already. Here every
bias, shift and mean has a value, and the statistics are those of the activations, as training would have left them.
"""

import fcntl
import json
import multiprocessing
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

import axiograd

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))
from support.torchvision import torchvision_models  # noqa: E402  # the tests' helper

#: Image size by beginning of the name; the first that fits counts.
SIZES = {
    "alexnet": 64,
    "inception": 299,
    "maxvit": 224,
    "vit_h_14": 28,
    "vit": 64,
    "swin": 64,
    "squeezenet": 64,
    "googlenet": 64,
    "convnext": 64,
    "efficientnet_v2": 96,  # at 32 the last maps have one pixel, and rounding decides what their network says
    "": 32,
}
#: Of our own networks; the others take images of 64 pixels.
OWN_SIZES = {"xfixup_resnet20": 32, "xfixup_resnet50": 224, "xvit": 32}
LARGE = 100  # pixels from which on the batch for the statistics is a small one


def names() -> list[str]:
    """Every architecture: the smallest of each family, then the second smallest, and so on."""
    models = torchvision_models()
    ordered = sorted(models.list_models(module=models), key=lambda n: (parameters(n), n))
    seen: dict[str, int] = {}
    places = {}
    for name in ordered:
        family = re.match(r"[a-z]+(_v\d(?=_)|_[xy](?=_))?", name)[0]
        seen[family] = places[name] = seen.get(family, 0) + 1
    return sorted(ordered, key=lambda n: (places[n], parameters(n), n))


def parameters(name: str) -> int:
    """How many it has with a thousand classes."""
    return int(torchvision_models().get_model_weights(name).DEFAULT.meta["num_params"])


def build(name: str) -> tuple[nn.Module, torch.Tensor]:
    """The architecture in eval mode with random weights and settled statistics, and an image of noise for it."""
    torch.manual_seed(0)
    size = next(s for start, s in SIZES.items() if name.startswith(start))
    if name in axiograd.models.list_models() and name.startswith("x"):
        own = OWN_SIZES.get(name, 64)
        return settled(axiograd.models.get_model(name).eval(), own), torch.randn(1, 3, own, own)
    options: dict[str, Any] = {}
    if name.startswith("vit"):
        options["image_size"] = size
    if name in {"googlenet", "inception_v3"}:
        options["init_weights"] = False
    model = settled(torchvision_models().get_model(name, **options).eval(), size)
    return model, torch.randn(1, 3, size, size)


@torch.no_grad()
def settled(model: nn.Module, size: int) -> nn.Module:
    """A value for every bias, shift, mean, and whatever is all zero; the statistics from a batch of noise."""
    for name, value in model.named_parameters():
        if name.endswith("bias"):
            value.add_(0.1 * torch.randn_like(value))
        elif not value.any():  # a class token, the head of a vision transformer
            value.normal_(std=0.02)
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    for norm in norms:
        norm.weight.uniform_(0.5, 1.5)
        norm.running_mean.normal_(std=0.1)
        norm.running_var.uniform_(0.5, 2)
        norm.momentum, norm.training = 1.0, True
    if norms:
        model(torch.randn(4 if size > LARGE else 16, 3, size, size))
    for norm in norms:
        norm.momentum, norm.training = 0.1, False
    return model


class Lines:
    """Results by architecture and way of conversion, saved as they come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.done: dict[tuple[str, str], dict[str, Any]] = self._saved()

    def _saved(self) -> dict[tuple[str, str], dict[str, Any]]:
        saved = json.loads(self._path.read_text()) if self._path.exists() else []
        return {(n["name"], n["how"]): n for n in saved}

    def has(self, name: str, how: str) -> bool:
        """Whether there is a line."""
        return (name, how) in self.done

    def add(self, name: str, how: str, line: dict[str, Any]) -> None:
        """Keep a line, and write all of them, also those that another process has added meanwhile."""
        with Path(__file__).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.done = self._saved()
            self.done[name, how] = {"name": name, "how": how, "commit": commit(), **line}
            temporary = self._path.with_suffix(".part")
            temporary.write_text(json.dumps(self.all(), indent=1) + "\n")
            temporary.replace(self._path)

    def all(self) -> list[dict[str, Any]]:
        """In the order of the names."""
        return [self.done[key] for key in sorted(self.done)]


def commit() -> str:
    """The code that a line was made by."""
    run = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(run, capture_output=True, text=True, check=False).stdout.strip()


def in_child(
    work: Callable[..., Iterator[dict[str, Any]]], *given: Any, seconds: int, gigabytes: int
) -> dict[str, Any]:
    """All that the work yields, merged, by a process with so much processor time and memory; and what became of it."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_limited, args=(theirs, seconds, gigabytes, work, given))
    child.start()
    theirs.close()
    found: dict[str, Any] = {}
    try:
        while not found.pop("end", False):
            found |= ours.recv()
    except EOFError:
        found["error"] = f"more than {seconds} s of processor time or {gigabytes} GB of memory, or a crash"
    child.join()
    return found


def _limited(
    answer: Connection, seconds: int, gigabytes: int, work: Callable[..., Any], given: tuple[Any, ...]
) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_DATA, (gigabytes * 2**30, gigabytes * 2**30))
    torch.set_num_threads(1)
    try:
        for part in work(*given):
            answer.send(part)
    except Exception as error:  # noqa: BLE001  # a failure is a line of the table
        answer.send({"error": f"{type(error).__name__}: {str(error).strip()}"})
    answer.send({"end": True})
