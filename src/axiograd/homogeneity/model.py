"""What can be certified: modules and callables; and what must be unpacked or refused first."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from axiograd.errors import InputError


def unwrap(model: Callable[..., Any]) -> Callable[..., Any]:
    """The Python module behind a compiled or parallel one; refuses what cannot be read."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if inner is None or inner is model:
            break
        model = inner
    if isinstance(model, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise InputError(
            f"{type(model).__name__} hides its operators behind TorchScript: pass the Python module that "
            "it was made from"
        )
    if not callable(model):
        raise InputError(f"{type(model).__name__} is no model: pass a torch.nn.Module or a callable")
    return model


def require_shapes(model: Callable[..., Any]) -> None:
    """Refuse lazy parameters, which have no shape yet."""
    if isinstance(model, nn.Module):
        tensors = [*model.named_parameters(), *model.named_buffers()]
        lazy = [name for name, tensor in tensors if is_lazy(tensor)]
        if lazy:
            raise InputError(
                f"parameters without a shape yet: {', '.join(lazy[:5])}; run the model once on an input "
                "to initialise them"
            )


def describe_model(model: Callable[..., Any]) -> str:
    if isinstance(model, nn.Module):
        return type(model).__name__
    return getattr(model, "__name__", None) or type(model).__name__


def describe_mode(model: Callable[..., Any]) -> str:
    """train, eval, or mixed; for callables, of no importance."""
    if not isinstance(model, nn.Module):
        return "callable"
    flags = {m.training for m in model.modules()}
    return "mixed" if len(flags) > 1 else "train" if flags.pop() else "eval"
