"""Certificates per model, kept as long as nothing changes that the proof looked at."""

import weakref
from collections.abc import Callable
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

    def __init__(self, certificate: Certificate, model: nn.Module, consulted: list[Tensor]) -> None:
        self.certificate = certificate
        # As long as these are alive, an equal id means the same module.
        self._modules = [weakref.ref(module) for module in model.modules()]
        # Values, not version counters: `p.data.fill_(1)` does not count as a change of version.
        self._consulted = [(weakref.ref(t), t.detach().clone()) for t in consulted]

    def holds(self) -> bool:
        if any(reference() is None for reference in self._modules):
            return False
        for reference, value in self._consulted:
            tensor = reference()
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
        return entry.certificate if entry is not None and entry.holds() else None

    def keep(self, model: Callable[..., Any], key: Any, certificate: Certificate, consulted: list[Tensor]) -> None:
        if key is None or not isinstance(model, nn.Module):
            return
        entries = self._entries.setdefault(model, {})
        if len(entries) >= _MOST_ENTRIES:
            entries.clear()
        entries[key] = _Entry(certificate, model, consulted)


def _structure(model: nn.Module) -> tuple[Any, ...]:
    """Every module with its plain attributes, tensors and hooks; runs on every use, hence no recursion."""
    parts: list[Any] = []
    stack: list[nn.Module | None] = [model]
    while stack:
        module = stack.pop()
        parts.append(id(module))
        if module is None:
            continue
        state = module.__dict__
        for name, value in state.items():
            if value.__class__ in _PLAIN:
                parts.append(value)
            elif isinstance(value, Tensor):
                parts.append(id(value))
            elif name in _TENSORS:
                parts.extend(map(id, value.values()))
            elif name in _HOOKS:
                parts.extend(value)
        stack.extend(state["_modules"].values())
    return tuple(parts)


_TENSORS = frozenset(("_parameters", "_buffers"))
_HOOKS = frozenset(("_forward_hooks", "_forward_pre_hooks"))


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
