"""Contexts in which a model is run for its attribution, and left as it was."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from axiograd.attribution.arguments import Model
from axiograd.homogeneity.tracing.private_torch import branches_run_plainly
from axiograd.homogeneity.tracing.surroundings import modules_behind, own_buffers, preserved_buffers
from axiograd.homogeneity.tracing.threads import TRAFFIC


@contextmanager
def _random_state_kept(device: torch.device) -> Iterator[None]:
    """What `torch.random.fork_rng` does, written only if something was drawn: that is most of its cost."""
    before = torch.get_rng_state()
    on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    try:
        yield
    finally:
        if not torch.equal(before, torch.get_rng_state()):
            torch.set_rng_state(before)
        if on_device is not None:
            torch.cuda.set_rng_state(on_device, device)


@contextmanager
def attribution_pass(model: Model, device: torch.device, *, create_graph: bool, preserve: bool) -> Iterator[None]:
    """Gradients on, whatever surrounds the call; with ``preserve``, buffers and random state come back unchanged.

    Buffers are swapped for copies instead of being written back: what was saved for a later
    ``backward()`` then keeps its version.
    """
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(mode=False))
        if not torch.is_grad_enabled():
            stack.enter_context(torch.enable_grad())
        if create_graph:
            # Flash and efficient attention, cond, compiled code and cuDNN's recurrent layers have no second derivative.
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            stack.enter_context(branches_run_plainly())
            if "torch._dynamo" in sys.modules:
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            if torch.is_autocast_enabled(device.type):
                torch.clear_autocast_cache()  # weights cached under no_grad would not lead back to the parameters
        if device.type == "cuda" and any(
            isinstance(m, nn.RNNBase) for root in modules_behind(model) for m in root.modules()
        ):
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        if preserve:
            stack.enter_context(_random_state_kept(device))
            stack.enter_context(preserved_buffers(model))
        else:
            stack.enter_context(own_buffers(model))
        stack.enter_context(TRAFFIC.running())
        yield
