"""Contexts in which a model is run for its attribution, and left as it was."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from axiograd.attribution._arguments import Model
from axiograd.homogeneity.behind import modules_behind, preserved_buffers
from axiograd.homogeneity.traffic import TRAFFIC


@contextmanager
def attribution_pass(model: Model, device: torch.device, *, create_graph: bool, preserve: bool) -> Iterator[None]:
    """Gradients on, whatever surrounds the call; with ``preserve``, buffers and random state come back unchanged.

    Buffers are swapped for copies instead of being written back: what was saved for a later
    ``backward()`` then keeps its version.
    """
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.enable_grad())
        modules = modules_behind(model)
        if create_graph:
            # Flash and efficient attention, compiled code and cuDNN's recurrent layers have no second derivative.
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            if "torch._dynamo" in sys.modules:
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            if torch.is_autocast_enabled(device.type):
                torch.clear_autocast_cache()  # weights cached under no_grad would not lead back to the parameters
        if device.type == "cuda" and any(isinstance(m, nn.RNNBase) for root in modules for m in root.modules()):
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        if preserve:
            devices = [device] if device.type == "cuda" else []
            stack.enter_context(torch.random.fork_rng(devices))
            stack.enter_context(preserved_buffers(model))
        stack.enter_context(TRAFFIC.running())
        yield
