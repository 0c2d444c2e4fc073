"""Proofs remembered with their models: one per mode, kind of input, baseline and readout, for every method and loss.

The map holds neither model nor program. What decided a proof (a bias that is zero, an exponent, a threshold) is
remembered with its version, so that a number that has changed is proved anew.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from axiograd._calls import Call, Model
from axiograd._functions import own_values
from axiograd._state import all_modules
from axiograd.homogeneity.certificate import Certificate
from axiograd.homogeneity.certification import prove
from axiograd.homogeneity.rules.registry import REVISIONS
from axiograd.homogeneity.sizes import Sizes

#: Proofs kept per kind of call, for sizes that one proof does not cover: oldest first out.
_PROOFS = 16


@dataclass
class Constant:
    """A number that decided, where it is kept, and its version when it did."""

    now: Callable[[], Tensor | None]
    version: tuple[int, int]
    value: Tensor

    def holds(self) -> bool:
        """Whether it is what it was, and trained if it was."""
        now = self.now()
        if now is None or now.requires_grad != self.value.requires_grad:
            return False
        version = _version(now)
        if version != self.version:
            if now.shape != self.value.shape or not torch.equal(now, self.value):
                return False
            self.version = version
        return True


@dataclass
class Remembered:
    """A certificate, for which sizes it is, the numbers that decided, and the objects that its key names."""

    certificate: Certificate
    sizes: Sizes | None
    constants: list[Constant]
    named: list[weakref.ref[Any]]

    def holds(self) -> bool:
        return all(reference() is not None for reference in self.named) and all(c.holds() for c in self.constants)


_KNOWN: weakref.WeakKeyDictionary[Any, dict[Any, list[Remembered]]] = weakref.WeakKeyDictionary()


def certified(
    model: Model,
    call: Call,
    *,
    baseline: Any = None,
    readout: Callable[[Any], Any] | None = None,
    axes: tuple[int, ...] = (0,),
) -> Certificate:
    """The certificate of a model as it is for calls like this one, or of what a readout makes of its outputs.

    It is traced and walked once, for any size along `axes` where that can be, and then remembered. Changes that leave
    modules, modes, kinds of inputs and the numbers that decided as they are go unnoticed here; Euler's identity, which
    every attribution is checked with, sees most of them.

    >>> from axiograd._calls import read_call
    >>> model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU())
    >>> certified(model, read_call(torch.ones(2, 4))).degree
    1.0
    """
    names = _Names()
    kinds, shapes = _kinds(call)
    key = (
        getattr(model, "__func__", None),
        kinds,
        _state(model),
        _surroundings(),
        names.of(baseline),
        names.of(readout),
        axes,
    )
    entries = _of_model(model).setdefault(key, [])
    for entry in entries:
        if entry.sizes is not None and entry.sizes.cover(shapes):
            if entry.holds():
                return entry.certificate
            entries.remove(entry)
            break
    leaves = call.leaves(baseline)
    subject = model if readout is None else ReadOut(model, readout)
    proof = prove(subject, leaves, axes=axes)
    if not proof.certificate.ok and len(axes) > 1:
        proof = prove(subject, leaves)
    entries.append(Remembered(proof.certificate, proof.sizes, _constants(model, proof.consulted), names.references))
    del entries[:-_PROOFS]
    return proof.certificate


def forget(model: Model) -> None:
    """Prove anew on the next call."""
    _of_model(model).clear()


class ReadOut(nn.Module):
    """readout(model(...)), so that the certificate covers what is attributed."""

    def __init__(self, model: Model, readout: Any) -> None:
        super().__init__()
        self.model = model
        self.readout = readout

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.readout(self.model(*args, **kwargs))


def _of_model(model: Model) -> dict[Any, list[Remembered]]:
    owner = getattr(model, "__self__", None) or model  # bound methods are made anew each time
    try:
        return _KNOWN.setdefault(owner, {})
    except TypeError:  # an object that cannot be referred to weakly is proved each time
        return {}


class _Names:
    """Values as parts of a key: numbers and text by value, functions by what they close over, others by identity."""

    def __init__(self) -> None:
        self.references: list[weakref.ref[Any]] = []

    def of(self, value: Any) -> Any:
        if value is None or isinstance(value, int | float | str):
            return value
        if isinstance(value, FunctionType):
            return value.__code__, *map(self.of, own_values(value).values())
        if isinstance(value, dict):
            return tuple((name, self.of(part)) for name, part in value.items())
        if isinstance(value, list | tuple):
            return tuple(map(self.of, value))
        try:
            self.references.append(weakref.ref(value))
        except TypeError:
            return repr(value)
        return _version(value) if isinstance(value, Tensor) else id(value)


def _version(tensor: Tensor) -> tuple[int, int]:
    return id(tensor), 0 if tensor.is_inference() else tensor._version  # noqa: SLF001 - documented, if not in the docs


def _state(model: Model) -> tuple[Any, ...]:
    """The modules with their modes; the tensors that a function closes over, and whether they are trained."""
    modules = tuple([(id(module), module.training) for module in all_modules(model)])
    if not isinstance(model, FunctionType):
        return modules
    tensors = [value for value in own_values(model).values() if isinstance(value, Tensor)]
    return modules, *((id(tensor), tensor.requires_grad) for tensor in tensors)


def _kinds(call: Call) -> tuple[Any, list[tuple[int, ...] | None]]:
    """What a proof depends on of a call besides the model: kinds of all arguments, and shapes of the tensors."""
    kinds: list[Any] = [call.slots, *call.keyword]
    shapes: list[tuple[int, ...] | None] = []
    for value in pytree.tree_leaves(call.values()):
        if isinstance(value, Tensor):
            kinds.append((value.dtype, value.device))
            shapes.append(tuple(value.shape))
        else:
            kinds.append((type(value), repr(value)))
            shapes.append(None)
    return tuple(kinds), shapes


def _surroundings() -> tuple[Any, ...]:
    """Switches of the process that change what a model computes."""
    autocast = torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")
    formats = torch.get_autocast_dtype("cpu") if any(autocast) else None
    return len(REVISIONS), autocast, formats, torch.get_default_dtype()


def _constants(model: Model, consulted: dict[str, Tensor]) -> list[Constant]:
    """The numbers that decided, looked up where modules keep them, so that one that is replaced is noticed."""
    homes: dict[int, Callable[[], Tensor | None]] = {}
    for module in all_modules(model) if consulted else ():
        for name, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            homes[id(value)] = partial(_held_by, weakref.ref(module), name)
    return [
        Constant(
            homes.get(id(tensor), partial(_itself, tensor)),
            _version(tensor),
            tensor.detach().clone().requires_grad_(tensor.requires_grad),
        )
        for tensor in consulted.values()
    ]


def _held_by(owner: weakref.ref[nn.Module], name: str) -> Tensor | None:
    return getattr(owner(), name, None)


def _itself(tensor: Tensor) -> Tensor:
    return tensor
