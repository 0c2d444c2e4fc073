"""Fit the constants of counterparts and patched forwards: the example inputs walk through the stripped model once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from axiograd.homogeneity.conversion.calling import ExampleCall
from axiograd.homogeneity.conversion.counterpart import Counterpart
from axiograd.homogeneity.conversion.live import suspended
from axiograd.homogeneity.conversion.norms import UncentredBatchNorm
from axiograd.homogeneity.conversion.patched import PatchedForward


def patches(model: nn.Module) -> dict[str, PatchedForward]:
    """The patched forwards in a model, by module path."""
    found = {path: module.__dict__.get("forward") for path, module in model.named_modules()}
    return {path: forward for path, forward in found.items() if isinstance(forward, PatchedForward)}


@torch.no_grad()
def calibrate(model: nn.Module, call: ExampleCall) -> None:
    """In eval mode everything is fitted; in train mode then only paths of functional code that eval mode does not take."""
    modes = {module: module.training for module in model.modules()}
    devices = {leaf.device for leaf in tree_leaves((call.args, call.kwargs)) if isinstance(leaf, torch.Tensor)}
    with torch.random.fork_rng([d for d in devices if d.type == "cuda"]):
        model.eval()
        with _learning(model):
            call(model)
        if patches(model):
            model.train()
            with _restored(model), _learning(model, modules=False):
                try:
                    call(model)
                except (RuntimeError, ValueError):  # e.g. a batch of one: train mode is then not for this example
                    pass
    for module, mode in modes.items():
        module.training = mode


@contextmanager
def _learning(model: nn.Module, *, modules: bool = True) -> Iterator[None]:
    handles = []
    for module in model.modules():
        if modules and isinstance(module, Counterpart) and not _trained(module):
            module.calls = 0
            handles.append(module.register_forward_pre_hook(_hook, with_kwargs=True))
    for forward in patches(model).values():
        forward.calibrating = True
        if modules:
            forward.calls.clear()
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for forward in patches(model).values():
            forward.calibrating = False


def _hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if isinstance(module, Counterpart):
        with suspended():
            module.calibrate(*args, **kwargs)


def _trained(module: Counterpart) -> bool:
    """A BatchNorm that has seen batches knows its scale better than a few example inputs do."""
    return isinstance(module, UncentredBatchNorm) and bool(module.num_batches_tracked > 0)


@contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    """Put every buffer back to its value: train mode moves running statistics."""
    before = {buffer: buffer.clone() for buffer in model.buffers()}
    try:
        yield
    finally:
        for buffer, value in before.items():
            buffer.copy_(value)
