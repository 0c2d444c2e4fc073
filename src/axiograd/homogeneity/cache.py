"""Certificates per model, kept as long as nothing changes that the proof looked at."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from axiograd.homogeneity.certificate import Certificate
from axiograd.homogeneity.inputs import Arguments
from axiograd.homogeneity.rules.registry import RULES

_PLAIN = (bool, int, float, str, type(None))


class _Entry:
    """A certificate with what it depends on."""

    def __init__(self, certificate: Certificate, consulted: list[Tensor]) -> None:
        self.certificate = certificate
        # Values, not version counters: `p.data.fill_(1)` does not count as a change of version.
        self._consulted = [(weakref.ref(t), t.detach().clone()) for t in consulted]

    def holds(self) -> bool:
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
        return _structure(model), _signature(arguments), len(RULES), torch.is_autocast_enabled("cpu")

    def find(self, model: Callable[..., Any], key: Any) -> Certificate | None:
        if key is None or not isinstance(model, nn.Module):
            return None
        entry = self._entries.get(model, {}).get(key)
        return entry.certificate if entry is not None and entry.holds() else None

    def keep(
        self, model: Callable[..., Any], key: Any, certificate: Certificate, consulted: list[Tensor] | None
    ) -> None:
        if key is None or consulted is None or not isinstance(model, nn.Module):
            return
        entries = self._entries.setdefault(model, {})
        if len(entries) >= _MOST_ENTRIES:
            entries.clear()
        entries[key] = _Entry(certificate, consulted)


#: Certificates kept per model; more than a handful of shapes are rare.
_MOST_ENTRIES = 16


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
    """Every module by identity, with its plain attributes, names of tensors, and hooks."""
    parts: list[Any] = []
    for module in model.modules():
        state = vars(module)
        parts.append(_Same(module))
        parts += [(k, v) for k, v in state.items() if type(v) in _PLAIN]
        parts += [(k, v is None) for k, v in module._parameters.items()]  # noqa: SLF001 - the cheap way in
        parts.append((*module._buffers, *module._forward_hooks, *module._forward_pre_hooks))  # noqa: SLF001
    return tuple(parts)


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
