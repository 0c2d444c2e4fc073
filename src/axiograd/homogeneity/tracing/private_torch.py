"""Torch's private names that the proof leans on, in one place, with a trial that they still do what we need.

Tested with torch 2.13. `require_sound_hooks` runs once per process, before the first proof. If a
custom `autograd.Function` or inference mode is not seen as what it is, nothing is certified.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch._functorch import utils as wrappers
from torch.utils import _pytree as pytree

from axiograd.errors import AxiogradError

#: Enters contexts on behalf of decorated functions.
_DECORATOR = "torch.utils._contextlib"


class UnsupportedTorchError(AxiogradError):
    """This version of torch does not show what the proof has to see."""


def is_operator(target: Any) -> TypeGuard[Any]:
    """An operator with a schema, e.g. `aten.add.Tensor`."""
    return isinstance(target, torch._ops.OpOverload)  # noqa: SLF001


def is_higher_order(target: Any) -> bool:
    """An operator that takes programs: cond, map, a block under no_grad."""
    return isinstance(target, torch._ops.HigherOrderOperator)  # noqa: SLF001


def is_composite(target: Any) -> bool:
    """A composite operator (dropout in eval mode, say) may hand back its argument without declaring it."""
    return is_operator(target) and target.has_kernel_for_dispatch_key(
        torch._C.DispatchKey.CompositeImplicitAutograd  # noqa: SLF001
    )


@contextmanager
def hidden_cuts_shown() -> Iterator[None]:
    """Inference mode acts as no_grad, and arguments of custom `autograd.Function`s are detached: both leave a trace.

    In this thread alone.

    >>> with hidden_cuts_shown(), torch.inference_mode():
    ...     torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    (False, False)
    """
    mode: Any = torch.inference_mode
    mine = threading.get_ident()
    unwrap, enter, leave = wrappers.unwrap_dead_wrappers, mode.__enter__, mode.__exit__

    def shown_arguments(args: Any) -> Any:
        # Every `Function.apply` passes here, also one that was bound to a name long before.
        args, function = unwrap(args), sys._getframe(1).f_locals.get("cls")  # noqa: SLF001 - whose backward it is
        if function is None or threading.get_ident() != mine or function.__module__.startswith("torch."):
            return args
        return pytree.tree_map_only(Tensor, Tensor.detach, args)

    def shown_enter(self: Any) -> None:
        caller = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001 - the tracer itself uses inference mode
        own = threading.get_ident() == mine
        if own and self.mode and (caller == _DECORATOR or not caller.startswith(("torch.", "contextlib"))):
            self.shown = torch.no_grad()
            self.shown.__enter__()
        else:
            enter(self)

    def shown_leave(self: Any, *error: Any) -> None:
        shown = self.__dict__.pop("shown", None)
        if shown is None:
            leave(self, *error)
        else:
            shown.__exit__(*error)

    wrappers.unwrap_dead_wrappers, mode.__enter__, mode.__exit__ = shown_arguments, shown_enter, shown_leave
    try:
        yield
    finally:
        wrappers.unwrap_dead_wrappers, mode.__enter__, mode.__exit__ = unwrap, enter, leave


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


@cache
def _teach_cond() -> None:
    cond, key = torch.ops.higher_order.cond, torch._C.DispatchKey.Autograd  # noqa: SLF001
    derived = cond.py_kernels[key]

    def kernel(condition: Any, yes: Any, no: Any, operands: Any) -> Any:
        if _BRANCHING.plain:
            return (yes if condition else no)(*operands)
        return derived(condition, yes, no, operands)

    cond.py_kernels[key] = kernel
    cond._dispatch_cache.clear()  # noqa: SLF001


class _WrongGradient(torch.autograd.Function):
    """x, with a gradient of zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:  # noqa: ARG004
        return torch.zeros_like(grads[0])


def wrong_gradient(x: Tensor) -> Tensor:
    """A function that looks homogeneous and has another gradient than it should."""
    result: Tensor = _WrongGradient.apply(x)  # type: ignore[no-untyped-call]
    return result


def require_sound_hooks() -> None:
    """Raise unless the hooks above still work in this torch; tried once per process, in some 10 ms."""
    x = torch.ones(2, requires_grad=True)
    with torch.enable_grad(), hidden_cuts_shown():
        through: Any = wrong_gradient(x)
        with torch.inference_mode():
            inside = x * 1
    seen = {
        "an autograd.Function of the user's own": not through.requires_grad,
        "inference mode": not inside.requires_grad and not inside.is_inference(),
        "composite operators": is_composite(torch.ops.aten.dropout.default)
        and not is_composite(torch.ops.aten.relu.default),
        "programs inside operators": is_higher_order(torch.ops.higher_order.cond),
    }
    missing = [what for what, found in seen.items() if not found]
    if missing:
        raise UnsupportedTorchError(
            f"torch {torch.__version__} does not show {' nor '.join(missing)} to the proof as torch 2.13 does, so that "
            "nothing can be certified: install a version that constraints.txt names."
        )
