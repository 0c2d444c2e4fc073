"""What it takes to run a model and leave it as it was: unwrapping, the modules behind it, their modes and buffers."""

from __future__ import annotations

import functools
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy

from axiograd._functions import global_values, own_values
from axiograd._user_code import line_of
from axiograd.errors import InputError

#: Threads that share a model take turns: held while it is traced, which swaps its parameters for fake ones, while it is
#: run, and while its buffers are copies.
TRACE_LOCK = threading.RLock()


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


def unwrap_parallel(model: Callable[..., Any]) -> Callable[..., Any]:
    """The user's own module inside DistributedDataParallel or DataParallel, with the wrapper's forward hooks.

    A call through the wrapper would change the wrapper's own state.
    """
    return unwrap_parallel(_taken_out(model, model.module)) if isinstance(model, PARALLEL) else model


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
        return unwrap(unwrap_parallel(model))
    if isinstance(model, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise InputError(
            f"{type(model).__name__} hides its operators behind TorchScript: pass the Python module that "
            "it was made from."
        )
    if not callable(model):
        raise InputError(
            f"{type(model).__name__} is not a model: pass a torch.nn.Module or a callable"
            f"{', here its .model' if hasattr(model, 'model') else ''}."
        )
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
    """train, eval, or mixed; it does not matter for callables."""
    if not isinstance(model, nn.Module):
        return "callable"
    flags = {m.training for m in model.modules()}
    return "mixed" if len(flags) > 1 else "train" if flags.pop() else "eval"


def like_of(model: nn.Module) -> Tensor:
    """An empty tensor on the model's device and of its dtype, to bring inputs there: ``x.to(like_of(model))``."""
    return next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0)).new_empty(0)


def compiled_from(model: Any) -> nn.Module | None:
    """The module that `torch.compile` wrapped, None for anything else, whatever its attributes are called."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    return model._orig_mod if frames is not None and isinstance(model, frames.OptimizedModule) else None  # noqa: SLF001


def captured_modules(function: Any) -> Iterator[tuple[str, nn.Module]]:
    """Modules that a callable reaches by closure, default or global, as its argument or as the owner of a method."""
    if isinstance(function, functools.partial):
        yield from captured_modules(function.func)
        values = [("argument", v) for v in (*function.args, *function.keywords.values())]
    else:
        owner = getattr(function, "__self__", None)
        values = [("model", owner)] if owner is not None else []
        plain = getattr(function, "__func__", function)
        if isinstance(plain, FunctionType):
            values += [*own_values(plain).items(), *global_values(plain).items()]
    for name, value in values:
        if isinstance(value, nn.Module):
            yield name, value


def module_of(model: Callable[..., Any]) -> nn.Module | None:
    """The module behind a callable: itself, or the object whose method it is."""
    owner = model if isinstance(model, nn.Module) else getattr(model, "__self__", None)
    return owner if isinstance(owner, nn.Module) else None


def modules_behind(model: Callable[..., Any]) -> list[nn.Module]:
    """All modules that a callable may run: its own, or those that a function closes over."""
    module = module_of(model)
    return [module] if module is not None else [captured for _, captured in captured_modules(model)]


def all_modules(model: Callable[..., Any]) -> list[nn.Module]:
    """Those behind a model, and all that they hold."""
    return [module for root in modules_behind(model) for module in root.modules()]


def all_tensors(model: Callable[..., Any]) -> list[Tensor]:
    """Parameters and buffers of the modules behind a model."""
    return [tensor for root in modules_behind(model) for tensor in (*root.parameters(), *root.buffers())]


@contextmanager
def running_eagerly() -> Iterator[None]:
    """Compiled modules run uncompiled: compiled code has no second derivative, and sees no later hook."""
    with torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext():
        yield


@contextmanager
def in_mode(model: Callable[..., Any], *, training: bool | None = None) -> Iterator[None]:
    """All modules behind a model in one mode, by default each in its own; afterwards each has its own again."""
    roots = modules_behind(model)
    modes = [(module, module.training) for module in all_modules(model)]
    try:
        for root in roots:
            if training is not None and any(module.training != training for module in root.modules()):
                root.train(training)
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def with_buffers(model: Callable[..., Any]) -> list[nn.Module]:
    """All modules behind a model that have buffers, each once; `modules()` makes up names that nobody needs here."""
    waiting, seen, found = modules_behind(model), set(), []
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        if module._buffers:  # noqa: SLF001  # setattr would run a module's own __setattr__
            found.append(module)
        if module._modules:  # noqa: SLF001
            waiting += [child for child in module._modules.values() if child is not None]  # noqa: SLF001
    return found


@contextmanager
def preserved_buffers(owners: Sequence[nn.Module]) -> Iterator[None]:
    """What a pass writes into buffers (BatchNorm's statistics) of these modules it writes into copies."""
    if not owners:
        yield
        return
    originals = [
        (owner, name, buffer)
        for owner in owners
        for name, buffer in owner._buffers.items()  # noqa: SLF001
        if buffer is not None
    ]
    copies: dict[int, Tensor] = {}
    with TRACE_LOCK:
        try:
            for owner, name, buffer in originals:
                owner._buffers[name] = copies.setdefault(id(buffer), buffer.clone())  # noqa: SLF001
            yield
        finally:
            for owner, name, buffer in originals:
                owner._buffers[name] = buffer  # noqa: SLF001


@contextmanager
def attributes_restored(model: Callable[..., Any], *, registered: bool = False) -> Iterator[None]:
    """Put every module's attributes and buffers back as they were; with `registered`, parameters and hooks as well.

    >>> model = nn.ReLU()
    >>> with attributes_restored(model):
    ...     model.calls = 1
    >>> hasattr(model, "calls")
    False
    """
    modules = all_modules(model)
    held = [vars(module) for module in modules]
    # Handles of hooks refer to the dictionaries themselves, so those are refilled, not replaced.
    held += [
        value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, dict) and (registered or name == "_buffers")
    ]
    before = [values.copy() for values in held]
    try:
        yield
    finally:
        for values, were in zip(held, before, strict=True):
            if values.keys() != were.keys() or any(values[key] is not were[key] for key in were):
                values.clear()
                values.update(were)


@contextmanager
def draws_noticed() -> Iterator[list[str]]:
    """Which of Python's and NumPy's generators were drawn from, filled in at the end; both are put back as they were.

    >>> with draws_noticed() as drawn:
    ...     _ = random.random()
    >>> drawn
    ['random']
    """
    drawn: list[str] = []
    python: Any = random.getstate()
    numpy: Any = np.random.get_state(legacy=False)  # noqa: NPY002 - the one that code without a generator draws from
    try:
        yield drawn
    finally:
        if random.getstate() != python:
            drawn.append("random")
            random.setstate(python)
        # A draw moves the position, or renews all of the key, whose first and last numbers are in the text.
        if repr(np.random.get_state(legacy=False)) != repr(numpy):  # noqa: NPY002
            drawn.append("numpy.random")
            np.random.set_state(numpy)  # noqa: NPY002


class _Branching(threading.local):
    plain = False


_BRANCHING = _Branching()


@contextmanager
def branches_run_plainly() -> Iterator[None]:
    """`torch.cond` runs the branch that it takes, in this thread; its own derivative has no derivative."""
    _teach_cond()
    before, _BRANCHING.plain = _BRANCHING.plain, True
    try:
        yield
    finally:
        _BRANCHING.plain = before


@functools.cache
def _teach_cond() -> None:
    cond, key = torch.ops.higher_order.cond, torch._C.DispatchKey.Autograd  # noqa: SLF001
    derived = cond.py_kernels[key]

    def kernel(condition: Any, yes: Any, no: Any, operands: Any) -> Any:
        if _BRANCHING.plain:
            return (yes if condition else no)(*operands)
        return derived(condition, yes, no, operands)

    cond.py_kernels[key] = kernel
    cond._dispatch_cache.clear()  # noqa: SLF001


def why_it_fails(model: Callable[..., Any], tensors: Sequence[Tensor], error: Exception) -> InputError:
    """What to do about inputs on which a model does not run: another precision, a dict, or what it says itself."""
    given = {x.dtype for x in tensors}
    weights = [p for module in modules_behind(model) for p in module.parameters()]
    own = {p.dtype for p in weights if p.is_floating_point()}
    if own and not given <= own:
        inputs, parameters = (" and ".join(sorted(map(str, formats))) for formats in (given, own))
        return InputError(
            f"the model fails on inputs of {inputs}, its parameters being {parameters} ({error}): convert one of them, "
            "for example inputs.to(next(model.parameters()).dtype)."
        )
    if any(p.is_inference() for p in weights):
        return InputError(
            "the model was made inside torch.inference_mode(), so its parameters have no gradients: build and load it "
            "outside of it."
        )
    place = f", at {line}" if (line := line_of(error)) else ""
    # Not the shape of the batch: a path method has every sample in it many times.
    said = f"the model fails on samples of shape {', '.join(str(tuple(x.shape[1:])) for x in tensors)}"
    said = f"{said}{place}: {type(error).__name__}: {(str(error).splitlines() or ['no message'])[0].rstrip('.')}."
    if isinstance(error, TypeError) and "unexpected keyword argument" in str(error):
        said += (
            " A dict of inputs becomes keyword arguments; where forward takes a dict as its one argument, pass "
            "`lambda **inputs: model(inputs)` or a module that does the same."
        )
    return InputError(said)
