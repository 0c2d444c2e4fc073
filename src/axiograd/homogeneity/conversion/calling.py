"""Example inputs as a call, and the kinds of model and input that conversion refuses, each with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.utils._pytree import tree_map

from axiograd.errors import ConversionError, InputError
from axiograd.homogeneity.conversion.lift import floating


@dataclass(frozen=True)
class ExampleCall:
    """Positional and keyword arguments of one example call of a model."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def ensure(cls, inputs: Any, additional: Any = None) -> "ExampleCall":
        if additional is None:
            extra: tuple[Any, ...] = ()
        else:
            extra = additional if isinstance(additional, tuple) else (additional,)
        if isinstance(inputs, Mapping):
            call = cls(extra, dict(inputs))
        elif isinstance(inputs, tuple | list):
            call = cls((*inputs, *extra), {})
        elif isinstance(inputs, Tensor):
            call = cls((inputs, *extra), {})
        else:
            raise InputError(
                f"example_inputs is a {type(inputs).__name__}; pass a tensor, a tuple of tensors, or a mapping of "
                "keyword inputs."
            )
        _check_inputs(floating(inputs))
        return call

    def __call__(self, model: nn.Module) -> Any:
        """Run the model on copies, so that in-place operators do not reach the user's tensors."""
        args, kwargs = tree_map(lambda v: v.detach().clone() if isinstance(v, Tensor) else v, (self.args, self.kwargs))
        return model(*args, **kwargs)


def _check_inputs(tensors: list[Tensor]) -> None:
    if not tensors:
        raise InputError(
            "example_inputs has no floating-point tensor, so there is nothing to scale: pass embeddings or features "
            "instead of token ids."
        )
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
    if type(model).__name__ == "OptimizedModule" and hasattr(model, "_orig_mod"):
        return ensure_module(model._orig_mod)  # noqa: SLF001  # the documented way back from torch.compile
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return ensure_module(model.module)
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
