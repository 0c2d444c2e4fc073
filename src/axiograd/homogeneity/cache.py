"""Certificates per model, kept as long as nothing changes that the proof looked at."""

import weakref
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

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


def _structure(model: nn.Module) -> tuple[Any, ...]:
    """Every module by identity and class, with its attributes, names of tensors, and hooks."""
    parts: list[Any] = []
    for module in model.modules():
        parts += [_Same(module), type(module)]
        for name, value in vars(module).items():
            # Written out, because it runs for every attribute on every use.
            if value.__class__ in _PLAIN:
                parts.append(value)
            elif name not in _OWN:
                parts.append(_frozen(value))
        parts += [(k, v is None) for k, v in module._parameters.items()]  # noqa: SLF001 - the cheap way in
        parts.append((*module._buffers, *module._forward_hooks, *module._forward_pre_hooks))  # noqa: SLF001
    return tuple(parts)


#: What every module has: tensors, submodules and hooks.
_OWN = frozenset(nn.Module().__dict__) - {"training"}
_DEEPEST = 4


def _frozen(value: Any, depth: int = 0) -> Any:
    """An attribute as it is now: plain values and containers by value, objects by identity and attributes."""
    if value.__class__ in _PLAIN:
        return value
    if value.__class__ is tuple and all(v.__class__ in _PLAIN for v in value):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return type(value), tuple(_frozen(v, depth + 1) for v in value) if depth < _DEEPEST else len(value)
    if isinstance(value, dict):
        items = [(k, v) for k, v in value.items() if not isinstance(v, nn.Module)]
        return tuple((_frozen(k, _DEEPEST), _frozen(v, depth + 1)) for k, v in items) if depth < _DEEPEST else ()
    if isinstance(value, MethodType):
        return value.__func__, _Same(value.__self__)
    try:
        identity: Any = _Same(value)
    except TypeError:
        return type(value), repr(value)
    looked_into = hasattr(value, "__dict__") and not isinstance(value, nn.Module | Tensor | FunctionType | type)
    return identity, _frozen(vars(value), depth + 1) if looked_into and depth < _DEEPEST else ()


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
