"""Torch's private names that the proof uses, in one place."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeGuard

import torch

#: Enters contexts on behalf of decorated functions.
_DECORATOR = "torch.utils._contextlib"


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
def inference_mode_shown() -> Iterator[None]:
    """Inference mode acts as no_grad in this thread, which leaves a trace.

    >>> with inference_mode_shown(), torch.inference_mode():
    ...     torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    (False, False)
    """
    mode: Any = torch.inference_mode
    mine = threading.get_ident()
    enter, leave = mode.__enter__, mode.__exit__

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

    mode.__enter__, mode.__exit__ = shown_enter, shown_leave
    try:
        yield
    finally:
        mode.__enter__, mode.__exit__ = enter, leave


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
