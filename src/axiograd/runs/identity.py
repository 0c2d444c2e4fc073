"""What a run's numbers depend on, described so that two runs can be told apart and the difference named."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from axiograd._functions import global_values, own_values
from axiograd.runs.differences import UNNAMED, unnamed
from axiograd.runs.digests import digest

#: Objects hold objects that hold objects; what matters is near the surface.
_DEPTH = 6
#: Ours; like the code of installed packages, it is known by its name and not looked into.
_OURS = "axiograd"


def describe(value: Any) -> Any:
    """JSON that is the same for the same value in another process: settings by name, tensors as digests.

    A module is described by its class, its settings and the values of its parameters and buffers.

    >>> describe({"steps": 8, "x": torch.zeros(2), "f": max})
    {'steps': 8, 'x': 'torch.float32 [2] ed5299774776d899', 'f': 'builtins.max'}
    >>> describe(functools.partial(round, ndigits=2))
    {'partial': 'builtins.round', 'ndigits': 2}
    """
    return _Describer().of(value, _DEPTH)


def structure(module: nn.Module) -> dict[str, Any]:
    """A module as `describe` has it, but for the values that training changes: its buffers, and what is not frozen.

    >>> structure(nn.Dropout(0.1))
    {'': {'type': 'torch.nn.modules.dropout.Dropout', 'p': 0.1, 'inplace': False}}
    """
    return _Describer(values=False).modules(module)


class _Describer:
    """One walk; objects that hold each other are described once."""

    def __init__(self, *, values: bool = True) -> None:
        self.values = values
        #: The objects themselves too: an id may be given again to another when they are gone.
        self.seen: dict[int, Any] = {}
        #: Their methods may read objects of the same class again.
        self.classes: dict[type, str] = {}
        self.aside = False

    def of(self, value: Any, depth: int) -> Any:
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "biufc":
                return f"{value.dtype} {list(value.shape)} {digest(repr(value.tolist()))}"
            value = torch.as_tensor(np.ascontiguousarray(value))
        if self.aside and isinstance(value, Tensor) and value.requires_grad:
            return self._tensor(value, given=False)
        for kind, description in _SIMPLE:
            if isinstance(value, kind):
                return description(value)
        if id(value) in self.seen:
            return f"{_name(type(value))}, as above"
        if depth == 0:
            return f"{UNNAMED}{_name(type(value))}"
        self.seen[id(value)] = value
        found = self._composed(value, depth - 1)
        if isinstance(value, Mapping | tuple | list | set | frozenset | functools.partial):
            del self.seen[id(value)]  # equal ones may or may not be the same one
        return found

    def _composed(self, value: Any, depth: int) -> Any:
        own = getattr(type(value), "_run_identity", None)
        if own is not None:
            return self.of(own(value), depth + 1)
        if isinstance(value, nn.Module):
            return self.modules(value, depth)
        if isinstance(value, Mapping | tuple | list | set | frozenset):
            return self._container(value, depth)
        if isinstance(value, functools.partial):
            arguments = {str(place): one for place, one in enumerate(value.args)} | value.keywords
            return {"partial": self.of(value.func, depth)} | {k: self.of(v, depth) for k, v in arguments.items()}
        if isinstance(value, FunctionType):
            return self._function(value, depth)
        if isinstance(value, MethodType):
            return {"method": self.of(value.__func__, depth), "of": self.of(value.__self__, depth)}
        if isinstance(value, type):
            return self._class(value, depth)
        return self._object(value, depth)

    def _container(self, value: Any, depth: int) -> Any:
        if isinstance(value, Mapping):
            return {str(key): self.of(one, depth) for key, one in value.items()}
        if isinstance(value, tuple | list):
            if all(isinstance(one, bool | int | float | str | None) for one in value) and len(value) > 8:  # noqa: PLR2004
                return f"{type(value).__name__} of {len(value)} {digest(repr(list(value)))}"
            return [self.of(one, depth) for one in value]
        return sorted(json.dumps(self.of(one, depth)) for one in value)

    def modules(self, root: nn.Module, depth: int = _DEPTH) -> dict[str, Any]:
        """Every module under its name: class, settings, and what of its tensors is not trained."""
        everything = dict(root.named_modules())
        self.seen |= {id(module): module for module in everything.values()}
        return {name: self._module(module, depth) for name, module in everything.items()}

    def _module(self, module: nn.Module, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {"type": self._class(type(module), depth)}
        if self.values and not module.training:
            found["mode"] = "eval"
        kept = module._non_persistent_buffers_set  # noqa: SLF001 - there is no public way to know
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            found[name] = self._tensor(parameter, given=self.values or not parameter.requires_grad)
            if not self.values and not parameter.requires_grad:
                found[name] += ", frozen"
            if hooks := [self.of(hook, depth) for hook in (parameter._backward_hooks or {}).values()]:  # noqa: SLF001
                found[f"{name} hooks"] = hooks
        for name, buffer in module.named_buffers(recurse=False, remove_duplicate=False):
            found[name] = self._tensor(buffer, given=self.values or name in kept)
        own = not of_library(type(module).__module__)
        for name, value in vars(module).items():
            if name in _OF_TORCH or isinstance(value, nn.Module):
                continue
            private = isinstance(value, _PRIVATE if self.values else _PRIVATE[:4]) or (own and _is_setting(value))
            if name.startswith("_") and not private:
                continue
            found[name] = self.of(value, depth)
        kinds = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
        if hooks := [self.of(hook, depth) for kind in kinds for hook in getattr(module, kind).values()]:
            found["hooks"] = hooks
        return found

    @staticmethod
    def _tensor(tensor: Tensor, *, given: bool) -> str:
        if isinstance(tensor, nn.UninitializedParameter | nn.UninitializedBuffer):
            return "not known before the first call"
        kind = f"{tensor.dtype} {list(tensor.shape)}"
        return f"{kind} {digest(tensor)}" if given else kind

    def _function(self, function: FunctionType, depth: int) -> Any:
        name = _name(function)
        if of_library(function.__module__) and "<" not in name:
            return name
        described: dict[str, Any] = {"function": name, "code": _code(function.__code__)}
        read = (Tensor, np.ndarray, nn.Module, bool, int, float, str, FunctionType, functools.partial)
        seen = {k: v for k, v in global_values(function).items() if isinstance(v, read) and v is not function}
        held = self.of(own_values(function), depth), self.of(seen, depth)
        more = {k: v for k, v in global_values(function).items() if k not in seen and _is_read(v)}
        if any(held) or more:
            described["holds"] = digest(json.dumps([*held, self._aside().of(more, depth)], sort_keys=True, default=str))
        if function.__name__ == "<lambda>":
            described["name"] = f"{UNNAMED}a lambda"
        elif any(unnamed({"": part}) for part in held):
            described["name"] = f"{UNNAMED}what {function.__qualname__} holds"
        return described

    def _aside(self) -> _Describer:
        """For what code reads beside what it is given, which may be the model in training: without trained values."""
        other = _Describer(values=False)
        other.classes, other.aside = self.classes, True
        return other

    def _class(self, kind: type, depth: int) -> str:
        """Its name and, where it is the user's own, its code, what that reads, and constants, inherited ones too."""
        if kind in self.classes:
            return self.classes[kind]
        self.classes[kind] = _name(kind)
        parts = []
        for one in kind.__mro__:
            if of_library(one.__module__):
                continue
            for name, member in sorted(vars(one).items()):
                member = getattr(member, "__func__", member)  # noqa: PLW2901 - what a static or class method wraps
                member = getattr(member, "fget", member)  # noqa: PLW2901
                if isinstance(member, FunctionType):
                    parts.append(f"{name} {_code(member.__code__)}")
                    held = own_values(member) | global_values(member)
                    read = {k: v for k, v in held.items() if _is_read(v) and v is not kind}
                    if read:
                        parts.append(json.dumps(self._aside().of(read, depth), sort_keys=True, default=str))
                elif not name.startswith("__") and _is_setting(member):
                    parts.append(f"{name} {json.dumps(self.of(member, max(depth, 1)), sort_keys=True)}")
        if parts:
            self.classes[kind] = f"{_name(kind)} {digest(*parts)}"
        return self.classes[kind]

    def _object(self, value: Any, depth: int) -> Any:
        if callable(value) and hasattr(value, "__qualname__"):
            inner = getattr(value, "__wrapped__", None)
            return _name(value) if inner is None else {"wrapped": self.of(inner, depth), "by": _name(type(value))}
        if is_dataclass(value):
            held = {field.name: getattr(value, field.name) for field in fields(value)}
        else:
            held = dict(getattr(value, "__dict__", {}))
            slots = [slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ())]
            held |= {slot: getattr(value, slot) for slot in slots if hasattr(value, slot)}
        own = not of_library(type(value).__module__)
        if self.aside and held and not own and not is_dataclass(value):
            return _name(type(value))  # loggers, locks: what they hold changes without a change of the run
        shown = {name: one for name, one in held.items() if not name.startswith("_")}
        private = {name: one for name, one in held.items() if own and name not in shown and _is_read(one)}
        apart = self._aside()
        apart.seen = self.seen
        described: dict[str, Any] = {"type": self._class(type(value), depth)}
        shown_as = repr(value)
        if not held and " at 0x" not in shown_as:
            described["repr"] = shown_as
        elif not held and not of_library(type(value).__module__) and not callable(value):
            described["name"] = f"{UNNAMED}{_name(type(value))}"
        described |= {name: self.of(one, depth) for name, one in shown.items()}
        return described | {name: apart.of(one, depth) for name, one in private.items()}


#: Attributes that torch's modules keep for themselves.
_OF_TORCH = {*vars(nn.Module()), "_is_hf_initialized"}
#: Private attributes of these kinds are settings, too.
_PRIVATE = (bool, int, float, str, list, tuple, Tensor)

_SIMPLE: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (Enum, str),
    (bool | int | float | str | None, lambda value: value if value == value else "nan"),  # noqa: PLR0124
    (bytes, digest),
    (complex, str),
    (np.generic, lambda value: value.item()),
    (Tensor, lambda value: f"{value.dtype} {list(value.shape)} {digest(value)}"),
    (torch.dtype | torch.device | torch.Size | slice | range | PurePath | torch.layout, str),
    # Not its state: that moves on while the run does.
    (torch.Generator, lambda value: f"seed {value.initial_seed()}"),
    (BuiltinFunctionType, lambda value: f"{value.__module__}.{value.__qualname__}"),
    (ModuleType, lambda value: value.__name__),
)


def _name(kind: Any) -> str:
    """Of a class or function; the user's own are the same whether their file is imported or is the script."""
    module = kind.__module__
    return f"{module}.{kind.__qualname__}" if of_library(module) else str(kind.__qualname__)


@functools.cache
def of_library(module: str | None) -> bool:
    """Whether code is installed rather than the user's own."""
    top = (module or "").partition(".")[0]
    if top == "__main__":
        return False
    if top in sys.stdlib_module_names or top == _OURS:
        return True
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _is_setting(value: Any, depth: int = _DEPTH) -> bool:
    """Whether a value is plain: numbers, texts, and containers of nothing else, which a cache of tensors is not."""
    if type(value) in {list, tuple, dict, set, frozenset}:
        inner = [*value, *value.values()] if isinstance(value, dict) else value
        return depth > 0 and all(_is_setting(one, depth - 1) for one in inner)
    return isinstance(value, bool | int | float | str | None)


def _is_read(value: Any, depth: int = _DEPTH) -> bool:
    """Whether a value that code reads is described: data, and what is of the user's own making."""
    if type(value) in {list, tuple, dict, set, frozenset}:
        inner = value.values() if isinstance(value, dict) else value
        named = not isinstance(value, dict) or all(_is_setting(key) for key in value)
        return depth > 0 and named and all(_is_read(one, depth - 1) for one in inner)
    if isinstance(value, bool | int | float | str | None | Tensor | np.ndarray | functools.partial | nn.Module):
        return True
    if isinstance(value, ModuleType):
        return False
    made = value.__module__ if isinstance(value, type | FunctionType) else type(value).__module__
    return not of_library(made) or hasattr(value, "__wrapped__")


def _code(code: CodeType) -> str:
    """Instructions, constants and names, of functions inside too."""
    constants = [_code(c) if isinstance(c, CodeType) else _constant(c) for c in code.co_consts]
    return digest(code.co_code, repr(constants), repr(code.co_names))


def _constant(value: Any) -> str:
    """As `repr` has it, but for sets of texts, whose order differs from process to process."""
    return f"set {sorted(map(repr, value))}" if isinstance(value, frozenset) else repr(value)
