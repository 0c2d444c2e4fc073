"""Contexts in which a model is run for its attribution, and left as it was."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.backends import cuda as attention

from axiograd.attribution.arguments import Model
from axiograd.homogeneity.tracing.private_torch import branches_run_plainly
from axiograd.homogeneity.tracing.surroundings import modules_behind, own_buffers, preserved_buffers, with_buffers
from axiograd.homogeneity.tracing.threads import TRAFFIC


class attribution_pass(AbstractContextManager[None]):  # noqa: N801 - used as a function
    """Gradients on, whatever surrounds the call; with ``preserve``, buffers and random state come back unchanged.

    Buffers are swapped for copies instead of being written back: what was saved for a later
    ``backward()`` then keeps its version. Written without generators, which cost a small network more than its pass.
    """

    def __init__(self, model: Model, device: torch.device, *, create_graph: bool, preserve: bool) -> None:
        self._model, self._device = model, device
        self._create_graph, self._preserve = create_graph, preserve
        self._undo: list[Callable[[], Any]] = []

    def __enter__(self) -> None:
        try:
            self._prepare()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._undo:
            self._undo.pop()()

    def _prepare(self) -> None:
        device = self._device
        if torch.is_inference_mode_enabled():
            self._within(torch.inference_mode(mode=False))
        if not torch.is_grad_enabled():
            self._within(torch.enable_grad())
        if self._create_graph:
            # Flash and efficient attention, cond, compiled code and cuDNN's recurrent layers have no second derivative.
            self._undo.append(_attention_by_products())
            self._within(branches_run_plainly())
            if "torch._dynamo" in sys.modules:
                self._within(torch.compiler.set_stance("force_eager"))
            if torch.is_autocast_enabled(device.type):
                torch.clear_autocast_cache()  # weights cached under no_grad would not lead back to the parameters
        if device.type == "cuda" and any(
            isinstance(m, nn.RNNBase) for root in modules_behind(self._model) for m in root.modules()
        ):
            self._within(torch.backends.cudnn.flags(enabled=False))
        if self._preserve:
            self._undo.append(_random_state_kept(device))
        if owners := with_buffers(self._model):
            self._within(preserved_buffers(owners) if self._preserve else own_buffers(owners))
        TRAFFIC.enter()
        self._undo.append(TRAFFIC.leave)

    def _within(self, context: AbstractContextManager[Any]) -> None:
        context.__enter__()
        self._undo.append(lambda: context.__exit__(None, None, None))


def _random_state_kept(device: torch.device) -> Callable[[], None]:
    """What `torch.random.fork_rng` does, written only if something was drawn: that is most of its cost."""
    before = torch.get_rng_state()
    on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def undo() -> None:
        if not torch.equal(before, torch.get_rng_state()):
            torch.set_rng_state(before)
        if on_device is not None:
            torch.cuda.set_rng_state(on_device, device)

    return undo


def _attention_by_products() -> Callable[[], None]:
    """What `sdpa_kernel(SDPBackend.MATH)` does, at a tenth of its cost."""
    flash, efficient = attention.flash_sdp_enabled(), attention.mem_efficient_sdp_enabled()
    cudnn, products = attention.cudnn_sdp_enabled(), attention.math_sdp_enabled()

    def enable(flash: bool, efficient: bool, cudnn: bool, products: bool) -> None:
        attention.enable_flash_sdp(flash)
        attention.enable_mem_efficient_sdp(efficient)
        attention.enable_cudnn_sdp(cudnn)
        attention.enable_math_sdp(products)

    enable(flash=False, efficient=False, cudnn=False, products=True)
    return lambda: enable(flash, efficient, cudnn, products)
