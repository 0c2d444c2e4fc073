"""What a run of attributions depends on, described so that two runs can be told apart and the difference named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from axiograd._functions import global_values, own_values
from axiograd.attribution.references import References

#: Functions can hold functions that hold functions; what matters is near the surface.
_DEPTH = 5


def digest(*parts: bytes | str | Tensor) -> str:
    """A short SHA-256 of tensors (dtype, shape and values), texts and bytes.

    >>> digest(torch.zeros(2)) == digest(torch.zeros(2)), digest(torch.zeros(2)) == digest(torch.zeros(2, 1))
    (True, False)
    """
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            sha.update(f"{part.dtype}{tuple(part.shape)}".encode())
            sha.update(part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        else:
            sha.update(part.encode() if isinstance(part, str) else part)
    return sha.hexdigest()[:16]


def describe(value: Any, depth: int = _DEPTH) -> Any:
    """JSON that is the same for the same value in another process: tensors and modules as digests.

    >>> describe({"steps": 8, "x": torch.zeros(2), "f": max})
    {'steps': 8, 'x': 'torch.float32 [2] 21ff1b764ef3e705', 'f': 'builtins.max'}
    """
    if isinstance(value, np.ndarray):
        value = torch.as_tensor(value)
    for kind, description in _DESCRIPTIONS:
        if isinstance(value, kind):
            return description(value, depth)
    if is_dataclass(value) and not isinstance(value, type):
        return {"type": type(value).__name__} | {f.name: describe(getattr(value, f.name)) for f in fields(value)}
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return _describe_object(value, depth)


def _describe_module(module: nn.Module, depth: int) -> str:  # noqa: ARG001
    parts = ((k, v if isinstance(v, Tensor) else repr(v)) for k, v in module.state_dict().items())
    mode = "train" if module.training else "eval"
    return f"{type(module).__name__} in {mode} mode {digest(*(part for pair in parts for part in pair))}"


def _describe_function(function: FunctionType, depth: int) -> Any:
    code = function.__code__
    constants = [c for c in code.co_consts if isinstance(c, bool | int | float | str | bytes | None)]
    described = {
        "function": f"{function.__module__}.{function.__qualname__}",
        "code": digest(code.co_code, repr(constants), repr(code.co_names)),
    }
    if depth > 0:
        values = (Tensor, nn.Module, bool, int, float, str)
        held = {k: v for k, v in global_values(function).items() if isinstance(v, values)} | own_values(function)
        described["holds"] = digest(json.dumps(describe(held, depth - 1), sort_keys=True))
    return described


def _describe_method(method: MethodType, depth: int) -> Any:
    return {"function": method.__qualname__, "of": describe(method.__self__, depth - 1)}


def _describe_object(value: Any, depth: int) -> Any:
    if isinstance(value, References):
        return {"type": type(value).__name__} | {
            name: describe(held) if name == "tensors" else f"{type(held).__name__} of {len(held)}"
            for name, held in vars(value).items()
            if hasattr(held, "__len__") and held
        }
    plain = {
        k: v for k, v in getattr(value, "__dict__", {}).items() if isinstance(v, bool | int | float | str | Tensor)
    }
    return {"type": type(value).__name__} | (describe(plain, depth - 1) if depth > 0 else {})


_DESCRIPTIONS: tuple[tuple[Any, Callable[[Any, int], Any]], ...] = (
    (bool | int | float | str | None, lambda value, _: value),
    (Tensor, lambda value, _: f"{value.dtype} {list(value.shape)} {digest(value)}"),
    (torch.dtype | torch.device, lambda value, _: str(value)),
    (torch.Generator, lambda value, _: f"state {digest(value.get_state())}"),
    (nn.Module, _describe_module),
    (Mapping, lambda value, depth: {str(k): describe(v, depth - 1) for k, v in value.items()}),
    (tuple | list, lambda value, depth: [describe(v, depth - 1) for v in value]),
    (FunctionType, _describe_function),
    (MethodType, _describe_method),
)


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Every setting in which two described runs differ, with both values.

    >>> differences({"method": {"n_steps": 8}}, {"method": {"n_steps": 16}})
    ['method.n_steps (there: 8, here: 16)']
    """
    there, here = dict(_flat(found)), dict(_flat(expected))
    nothing = "nothing"
    return [
        f"{name} (there: {there.get(name, nothing)}, here: {here.get(name, nothing)})"
        for name in {**there, **here}
        if there.get(name, nothing) != here.get(name, nothing)
    ]


def _flat(described: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(described, Mapping):
        for key, value in described.items():
            yield from _flat(value, f"{name}.{key}" if name else key)
    else:
        yield name, described
