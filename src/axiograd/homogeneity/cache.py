"""Certificates per model, kept as long as nothing changes that the proof looked at."""

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from axiograd._functions import global_values, own_values
from axiograd.homogeneity.certificate import Certificate
from axiograd.homogeneity.inputs import Arguments
from axiograd.homogeneity.rules.registry import rules_version

_PLAIN = frozenset((bool, int, float, str, type(None)))

#: Certificates kept per model; more than a handful of shapes are rare.
_MOST_ENTRIES = 16


class _Entry:
    """A certificate with what it depends on."""

    def __init__(self, certificate: Certificate, model: nn.Module, consulted: Mapping[str, Tensor]) -> None:
        self.certificate = certificate
        # As long as these are alive, an equal id means the same module.
        self._modules = [weakref.ref(module) for module in model.modules()]
        # Values, not version counters: `p.data.fill_(1)` does not count as a change of version.
        self._consulted = [(name, weakref.ref(t), t.detach().clone()) for name, t in consulted.items()]

    def holds(self, model: nn.Module) -> bool:
        if any(reference() is None for reference in self._modules):
            return False
        named: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
        named |= dict(model.named_buffers(remove_duplicate=False))
        for name, reference, value in self._consulted:
            # By name, because a parameter may have been replaced while someone still holds the old one.
            tensor = named.get(name)
            tensor = reference() if tensor is None else tensor
            if tensor is None or tensor.shape != value.shape or not torch.equal(tensor, value):
                return False
        return True


class CertificateCache:
    """Looks a certificate up by the model's structure and the inputs' shapes."""

    def __init__(self) -> None:
        self._entries: weakref.WeakKeyDictionary[nn.Module, dict[Any, _Entry]] = weakref.WeakKeyDictionary()

    def key(self, model: Callable[..., Any], arguments: Arguments) -> Any:
        """None: not to be cached."""
        if not isinstance(model, nn.Module):
            return None
        return _structure(model), _signature(arguments), rules_version(), torch.is_autocast_enabled("cpu")

    def find(self, model: Callable[..., Any], key: Any) -> Certificate | None:
        if key is None or not isinstance(model, nn.Module):
            return None
        entry = self._entries.get(model, {}).get(key)
        return entry.certificate if entry is not None and entry.holds(model) else None

    def keep(
        self, model: Callable[..., Any], key: Any, certificate: Certificate, consulted: Mapping[str, Tensor]
    ) -> None:
        if key is None or not isinstance(model, nn.Module):
            return
        entries = self._entries.setdefault(model, {})
        if len(entries) >= _MOST_ENTRIES:
            entries.clear()
        entries[key] = _Entry(certificate, model, consulted)


class _Same:
    """Compares by identity, without keeping its object alive."""

    __slots__ = ("_hash", "_reference")

    def __init__(self, item: object) -> None:
        self._reference = weakref.ref(item)
        self._hash = id(item)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        mine = self._reference()
        return isinstance(other, _Same) and mine is not None and mine is other._reference()


def frozen(value: Any) -> Any:
    """A value as it is now, to be compared with another or a later one: functions are equal if they do the same.

    >>> factors = [1]
    >>> before = frozen(lambda x: x * factors[0])
    >>> factors[0] = 2
    >>> before == frozen(lambda x: x * factors[0])
    False
    """
    return _frozen(value)


def _structure(model: nn.Module, within: tuple[int, ...] = ()) -> tuple[Any, ...]:
    """Every module by identity and class, with its attributes, names of tensors, and hooks."""
    parts: list[Any] = []
    within = (*within, id(model))
    for module in model.modules():
        parts += [_Same(module), type(module)]
        for name, value in vars(module).items():
            # Written out, because it runs for every attribute on every use.
            if value.__class__ in _PLAIN:
                parts.append(value)
            elif name not in _OWN:
                parts.append(_frozen(value, 0, within))
        parts += [(k, v is None) for k, v in module._parameters.items()]  # noqa: SLF001 - the cheap way in
        parts.append((*module._buffers, *module._forward_hooks, *module._forward_pre_hooks))  # noqa: SLF001
    return tuple(parts)


#: What every module has: tensors, submodules and hooks.
_OWN = frozenset(nn.Module().__dict__) - {"training"}
_DEEPEST = 4


def _frozen(value: Any, depth: int = 0, within: tuple[int, ...] = ()) -> Any:
    """A value as it is now: plain ones, containers and functions by value, objects by identity and attributes."""
    if value.__class__ in _PLAIN:
        return value
    if value.__class__ is tuple and all(v.__class__ in _PLAIN for v in value):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return type(value), tuple(_frozen(v, depth + 1, within) for v in value) if depth < _DEEPEST else len(value)
    if isinstance(value, dict):
        items = [(k, v) for k, v in value.items() if not isinstance(v, nn.Module)]
        return (
            tuple((_frozen(k, _DEEPEST), _frozen(v, depth + 1, within)) for k, v in items) if depth < _DEEPEST else ()
        )
    if isinstance(value, MethodType):
        return _frozen(value.__func__, depth, within), _frozen(value.__self__, depth + 1, within)
    if isinstance(value, partial):
        return partial, _frozen((value.func, value.args, value.keywords), depth, within)
    if isinstance(value, FunctionType) and depth < _DEEPEST and not _is_torch(value):
        return _frozen_function(value, depth, within)
    try:
        identity: Any = _Same(value)
    except TypeError:
        return type(value), repr(value)
    looked_into = hasattr(value, "__dict__") and not isinstance(value, _NOT_LOOKED_INTO)
    return identity, _frozen(vars(value), depth + 1, within) if looked_into and depth < _DEEPEST else ()


_NOT_LOOKED_INTO = (nn.Module, Tensor, FunctionType, ModuleType, type)


def _is_torch(function: FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] == "torch"


def _frozen_function(function: FunctionType, depth: int, within: tuple[int, ...]) -> Any:
    """Its code, and what it reads besides its arguments; another function with the same does the same."""
    if id(function) in within:
        return function.__code__
    within = (*within, id(function))
    own = {**own_values(function), **vars(function)}
    # The globals of a library lead everywhere: what matters is near the surface.
    near = [(own, depth + 1), (global_values(function), max(depth + 1, _DEEPEST - 2))]
    held: list[Any] = [function.__code__]
    for values, level in near:
        for name, value in values.items():
            if isinstance(value, nn.Module):
                held.append((name, _Same(value) if id(value) in within else _structure(value, within)))
            else:
                held.append((name, _frozen(value, level, within)))
    return tuple(held)


def _signature(arguments: Arguments) -> tuple[Any, ...]:
    parts: list[Any] = [tuple(arguments.kwargs)]
    for leaf in arguments.leaves:
        value = leaf.value
        if isinstance(value, Tensor):
            baseline = None if leaf.baseline is None else tuple(leaf.baseline.flatten().tolist())
            parts.append((leaf.name, leaf.scales, value.shape, value.dtype, value.device, baseline))
        else:
            parts.append((leaf.name, repr(value)))
    return tuple(parts)


CACHE = CertificateCache()
