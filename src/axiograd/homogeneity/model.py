"""What can be certified: modules and callables; and what must be unpacked or refused first."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy

from axiograd.errors import InputError
from axiograd.homogeneity.running import compiled_from


class Hooked(nn.Module):
    """A module with the forward hooks of the wrapper that it was taken out of."""

    def __init__(self, module: nn.Module, wrapper: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.training = module.training  # not train(), which would reach into the module
        for name in _HOOKS:
            setattr(self, name, getattr(wrapper, name))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
)
#: Wrappers that spread a model over devices or processes.
PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def out_of_parallel(model: Callable[..., Any]) -> Callable[..., Any]:
    """The user's own module inside DistributedDataParallel or DataParallel, with the wrapper's forward hooks.

    The machinery of a wrapper must not be disturbed by an extra look.
    """
    return out_of_parallel(_taken_out(model, model.module)) if isinstance(model, PARALLEL) else model


def runnable(model: Callable[..., Any]) -> Callable[..., Any]:
    """The model itself; the module of an exported program, which cannot be called."""
    return model.module() if isinstance(model, ExportedProgram) else model


def unwrap(model: Callable[..., Any]) -> Callable[..., Any]:
    """The Python module behind a compiled or parallel one, with the wrapper's hooks; refuses what cannot be read."""
    model = runnable(model)
    compiled = compiled_from(model)
    if compiled is not None and isinstance(model, nn.Module):
        return unwrap(_taken_out(model, compiled))
    if isinstance(model, PARALLEL):
        return unwrap(out_of_parallel(model))
    if isinstance(model, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise InputError(
            f"{type(model).__name__} hides its operators behind TorchScript: pass the Python module that "
            "it was made from."
        )
    if not callable(model):
        raise InputError(f"{type(model).__name__} is not a model: pass a torch.nn.Module or a callable.")
    return model


def _taken_out(wrapper: nn.Module, module: nn.Module) -> Callable[..., Any]:
    hooked = wrapper._forward_hooks or wrapper._forward_pre_hooks  # noqa: SLF001 - whether there are any
    return Hooked(module, wrapper) if hooked else module


def require_shapes(model: Callable[..., Any]) -> None:
    """Refuse lazy parameters, which have no shape yet."""
    if isinstance(model, nn.Module):
        tensors = [*model.named_parameters(), *model.named_buffers()]
        lazy = [name for name, tensor in tensors if is_lazy(tensor)]
        if lazy:
            raise InputError(
                f"parameters without a shape yet: {', '.join(lazy[:5])}; run the model once on an input "
                "to initialise them."
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


def like_of(model: nn.Module) -> Tensor:
    """An empty tensor on the model's device and of its dtype, to bring inputs there: ``x.to(like_of(model))``."""
    return next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0)).new_empty(0)
