"""The example call: what each argument of the model is, and what to_xdnn refuses, each with its reason."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from axiograd._calls import Leaves, read_leaves
from axiograd._state import PARALLEL, compiled_from
from axiograd.errors import ConfigurationError, ConversionError, InputError

#: An argument of the model: its name, or its position where the signature has no name for it.
Slot: TypeAlias = int | str
#: The argument that says which tokens count (True or nonzero), or a function of the call that returns it.
Mask: TypeAlias = str | int | Callable[..., Tensor]

#: Masks that are found by themselves: Hugging Face's keep what is nonzero, PyTorch's drop what is True (or -∞).
_KEEPING = ("attention_mask", "decoder_attention_mask")
_DROPPING = ("key_padding_mask", "src_key_padding_mask", "tgt_key_padding_mask")


@dataclass(frozen=True)
class Roles:
    """What the arguments of a model are: what scales, what stays as it is, what masks."""

    #: Names of the positional parameters of forward.
    names: tuple[str, ...] = ()
    #: Floating-point arguments that do not scale.
    constants: frozenset[Slot] = frozenset()
    #: Leaves without a batch dimension beside others that have one.
    shared: frozenset[Slot] = frozenset()
    mask: Mask | None = None

    @classmethod
    def of(cls, model: nn.Module, constants: set[Slot], mask: Mask | None) -> "Roles":
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = inspect.signature(model.forward).parameters.values()
        names = tuple(p.name for p in parameters if p.kind in kinds)
        roles = cls(names)
        if isinstance(mask, str | int):
            mask = roles.slot(mask)
            constants = constants | {mask}
        return replace(roles, constants=frozenset(map(roles.slot, constants)), mask=mask)

    def slot(self, given: Slot) -> Slot:
        """The name of a position, if it has one."""
        return self.names[given] if isinstance(given, int) and 0 <= given < len(self.names) else given

    def by_slot(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[Slot, Any]:
        return {self.slot(i): value for i, value in enumerate(args)} | dict(kwargs)

    def may_mask(self) -> bool:
        """Whether a call may have a mask."""
        return self.mask is not None or any(name in self.names for name in (*_KEEPING, *_DROPPING))

    def scales(self, slot: Slot) -> bool:
        return slot not in self.constants and slot not in _KEEPING and slot not in _DROPPING

    def masks(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[Slot, Tensor]:
        """The masks of a call, as booleans shaped [batch, tokens] that are True for what counts."""
        slots = self.by_slot(args, kwargs)
        if callable(self.mask):
            return {"mask": _ensure_mask(self.mask(*args, **kwargs), dropping=False)}
        keeping = _KEEPING if self.mask is None else (self.mask,)
        found = {slot: _ensure_mask(slots[slot], dropping=False) for slot in keeping if _is_mask(slots.get(slot))}
        dropping = _DROPPING if self.mask is None else ()
        return found | {
            slot: _ensure_mask(slots[slot], dropping=True) for slot in dropping if _is_mask(slots.get(slot))
        }


def _is_mask(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 1


def _ensure_mask(mask: Any, *, dropping: bool) -> Tensor:
    """True for what counts; of a mask over pairs of tokens, what any token may look at."""
    if not _is_mask(mask):
        shape = f"tensor of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        raise InputError(f"the mask is a {shape}; it needs the dimensions [batch, tokens].")
    if mask.is_floating_point() and (dropping or mask.dim() > 2):  # noqa: PLR2004
        kept: Tensor = mask > -1  # added to the logits: 0 keeps, a large negative number drops
    else:
        kept = mask == 0 if dropping else mask != 0
    return kept.flatten(1, -2).any(1) if kept.dim() > 2 else kept  # noqa: PLR2004


@dataclass(frozen=True)
class ExampleCall:
    """One example call of a model, with the role of every argument."""

    arguments: Leaves
    roles: Roles = field(default_factory=Roles)

    @classmethod
    def ensure(
        cls, model: nn.Module, inputs: Any, additional: Any = None, *, baseline: Any = None, mask: Mask | None = None
    ) -> "ExampleCall":
        arguments = read_leaves(inputs, additional_forward_args=additional, baseline=baseline)
        n = 0 if isinstance(inputs, Mapping) else 1 if isinstance(inputs, Tensor) else len(inputs)
        constants: set[Slot] = set(range(n, len(arguments.args)))
        constants |= set(arguments.kwargs) - (set(inputs) if isinstance(inputs, Mapping) else set())
        call = cls(arguments, Roles.of(model, constants, mask))
        if isinstance(mask, str | int) and call.roles.mask not in call.by_slot():
            raise ConfigurationError(f"mask={mask!r} names no argument; the call has {list(call.by_slot())}.")
        _check_inputs([leaf.value for leaf in arguments.leaves if leaf.scales])
        return call

    def by_slot(self) -> dict[Slot, Any]:
        return self.roles.by_slot(self.arguments.args, self.arguments.kwargs)

    def masks(self) -> dict[Slot, Tensor]:
        return self.roles.masks(self.arguments.args, self.arguments.kwargs)

    def __call__(self, model: nn.Module) -> Any:
        args, kwargs = self.arguments.copies()
        return model(*args, **kwargs)


def _check_inputs(tensors: list[Tensor]) -> None:
    for i, x in enumerate(tensors):
        if x.numel() == 0:
            raise InputError(f"floating-point example input {i} of shape {tuple(x.shape)} is empty.")
        if x.device.type == "meta":
            raise InputError(
                f"floating-point example input {i} is on the meta device and has no values to calibrate on."
            )
        if not bool(torch.isfinite(x).all()):
            raise InputError(f"floating-point example input {i} of shape {tuple(x.shape)} has NaN or infinite values.")


def ensure_module(model: Any) -> nn.Module:
    """The plain module behind compiled and data-parallel wrappers, or an error that says what to pass instead."""
    if not isinstance(model, nn.Module):
        raise ConversionError(
            f"to_xdnn converts an nn.Module; got {type(model).__name__}: wrap the function in a module."
        )
    inner = model.module if isinstance(model, PARALLEL) else compiled_from(model)
    if inner is not None:
        return ensure_module(inner)
    _check_modules(model)
    _check_tensors(model)
    return model


def _check_modules(model: nn.Module) -> None:
    for path, module in model.named_modules():
        name = f"{path or 'the model'} ({type(module).__name__})"
        if isinstance(module, torch.jit.ScriptModule):
            raise ConversionError(f"{name} is scripted or traced; its code is fixed: pass the module it was made from.")
        if ".quantized" in type(module).__module__:
            raise ConversionError(f"{name} is quantised; rounding has no degree: convert first, then quantise.")


def _check_tensors(model: nn.Module) -> None:
    for path, tensor in (*model.named_parameters(), *model.named_buffers()):
        if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
            raise ConversionError(f"{path} is lazy and has no shape yet: run the model once on real inputs first.")
        if tensor.device.type == "meta":
            raise ConversionError(f"{path} is on the meta device and has no values: load the weights first.")
        if tensor.is_quantized:
            raise ConversionError(f"{path} is quantised; rounding has no degree: convert first, then quantise.")
