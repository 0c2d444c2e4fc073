"""Cuts of the gradient that an exported graph would not show: inference mode, and backward passes of the user's own."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._functorch import utils as wrappers
from torch.utils import _pytree as pytree

#: Enters contexts on behalf of decorated functions.
_DECORATOR = "torch.utils._contextlib"


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
