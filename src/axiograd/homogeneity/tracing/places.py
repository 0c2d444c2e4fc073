"""From a node of the exported graph, or from an exception, to the user's module and source line."""

import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import fx, nn

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in [^\n]*(?:\n\s+(?P<code>[^\n]+))?')
_TORCH = str(Path(torch.__file__).parent)
_HERE = str(Path(__file__).parent)


@dataclass(frozen=True)
class Location:
    module: str = ""
    source: str = ""
    code: str = ""


def locate(node: fx.Node) -> Location:
    """Innermost module, and the innermost line that is not torch's own."""
    stack = node.meta.get("nn_module_stack") or {}
    module = ""
    for path, _ in stack.values():
        module = path or module
    module = re.sub(r"@\d+$", "", module)
    file, line, code = "", 0, ""
    for match in _FRAME.finditer(node.meta.get("stack_trace") or ""):
        if not _is_library(match["file"]):
            file, line, code = match["file"], int(match["line"]), (match["code"] or "").strip()
    return Location(module, _source(file, line), code)


def locate_error(error: BaseException) -> Location:
    """The innermost line of the user's code on the way to an exception."""
    return innermost(traceback.extract_tb(error.__traceback__))


def innermost(frames: Iterable[traceback.FrameSummary]) -> Location:
    """The last frame that is neither torch's nor ours."""
    found = None
    for frame in frames:
        if not _is_library(frame.filename) and frame.filename != "<string>":
            found = frame
    if found is None:
        return Location()
    return Location("", _source(found.filename, found.lineno or 0), (found.line or "").strip())


def _is_library(file: str) -> bool:
    return file.startswith((_TORCH, _HERE))


def _source(file: str, line: int) -> str:
    if not file:
        return ""
    path = Path(file)
    with suppress(ValueError):
        path = path.relative_to(Path.cwd())
    return f"{path}:{line}"


@contextmanager
def record_user_lines(model: Callable[..., Any]) -> Iterator[None]:
    """Let the export remember lines in the user's own functions, not in methods called `forward` alone."""
    anchors: set[tuple[str, str]] | None = getattr(torch.fx.proxy, "_STACK_TRACE_ANCHORS", None)
    if anchors is None:
        yield
        return
    added = {(f.__code__.co_filename, f.__code__.co_name) for f in _functions(model)} - anchors
    anchors.update(added)
    try:
        yield
    finally:
        anchors.difference_update(added)


def _functions(model: Callable[..., Any]) -> Iterator[FunctionType]:
    owners: list[Any] = []
    if isinstance(model, nn.Module):
        owners = list({cls for m in model.modules() for cls in type(m).__mro__ if not _ours(cls.__module__)})
    elif isinstance(model, FunctionType):
        yield model
    modules = {getattr(owner, "__module__", "") for owner in (*owners, model)}
    owners += [sys.modules[name] for name in modules if name in sys.modules and not _ours(name)]
    for owner in owners:
        for member in vars(owner).values():
            if isinstance(member, FunctionType):
                yield member


def _ours(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] in {"torch", "builtins"} or module.startswith("axiograd.homogeneity")
