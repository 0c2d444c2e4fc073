"""Fit the constants of counterparts and patched forwards: the example inputs walk through the stripped model once."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from axiograd._state import in_mode, preserved_buffers, with_buffers
from axiograd.homogeneity.conversion.counterparts import Counterpart
from axiograd.homogeneity.conversion.degrees import suspended
from axiograd.homogeneity.conversion.example import ExampleCall
from axiograd.homogeneity.conversion.layers import UncentredBatchNorm
from axiograd.homogeneity.conversion.patched import PatchedForward
from axiograd.homogeneity.tracing.surroundings import attributes_restored

#: How far a norm's answer may move, by its epsilon, when its input is halved or doubled.
NORM_TOLERANCE = 0.05


def patches(model: nn.Module) -> dict[str, PatchedForward]:
    """The patched forwards in a model, by module path."""
    found = {path: module.__dict__.get("forward") for path, module in model.named_modules()}
    return {path: forward for path, forward in found.items() if isinstance(forward, PatchedForward)}


@torch.no_grad()
def calibrate(model: nn.Module, call: ExampleCall) -> None:
    """In eval mode everything is fitted; then, in train mode, what functional code reaches only there."""
    with run_in_mode(model, training=False), _learning(model):
        call(model)
    if patches(model):
        with left_as_it_was(model, training=True), _learning(model, modules=False):
            _attempt(model, call)


@torch.no_grad()
def owners_of_functions(model: nn.Module, call: ExampleCall) -> set[str]:
    """Paths of the modules in whose own forward a function would be rewritten: a dry run of a fully patched model."""
    running: list[str] = []
    found: set[str] = set()

    def enter(path: str) -> Callable[..., None]:
        return lambda *_: running.append(path)

    trial = PatchedForward(model, call.roles)
    trial.on_rewrite = lambda: found.add(running[-1])
    with ExitStack() as stack:
        stack.enter_context(attributes_restored(model))
        for path, module in model.named_modules():
            stack.enter_context(module.register_forward_pre_hook(enter(path)))
            stack.enter_context(module.register_forward_hook(lambda *_: running.pop() and None))
        model.forward = trial
        for mode in (True, False):
            running.clear()
            with left_as_it_was(model, training=mode), _learning(model):
                _attempt(model, call)
    return found


@torch.no_grad()
def hand_written_norms(model: nn.Module, call: ExampleCall) -> set[str]:
    """Paths of modules without parts that answer 2x and x/2 as they answer x: norms, whoever wrote them."""
    found: set[str] = set()

    def probe(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], y: Any) -> None:
            x = args[0] if args else None
            if not (isinstance(x, Tensor) and isinstance(y, Tensor) and x.is_floating_point() and x.shape == y.shape):
                return
            allowed = NORM_TOLERANCE * y.square().mean().sqrt()
            uneven = torch.linspace(0.5, 2.0, x.shape[-1], dtype=x.dtype, device=x.device)
            halved, doubled, otherwise = (
                (type(module).forward(module, factor * x, *args[1:], **kwargs) - y).abs().max()
                for factor in (0.5, 2.0, uneven)
            )
            # a sign or a step stays as it is under uneven factors too, and has no gradient
            if halved < allowed and doubled < allowed < otherwise:
                found.add(path)

        return hook

    with ExitStack() as stack:
        for path, module in model.named_modules():
            if not any(module.children()) and type(module).forward.__module__.split(".")[0] != "torch":
                stack.enter_context(module.register_forward_hook(probe(path), with_kwargs=True))
        stack.enter_context(left_as_it_was(model))
        call(model)
    return found


@contextmanager
def run_in_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Everything in one mode, and afterwards each module in its own again; random numbers are left as they were."""
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    with in_mode(model, training=training), torch.random.fork_rng(list(devices)):
        yield


@contextmanager
def left_as_it_was(model: nn.Module, *, training: bool = False) -> Iterator[None]:
    """The same, and what is written into buffers, as train mode does into running statistics, does not stay."""
    with run_in_mode(model, training=training), preserved_buffers(with_buffers(model)):
        yield


def _attempt(model: nn.Module, call: ExampleCall) -> None:
    with suppress(RuntimeError, ValueError):  # e.g. a batch of one: train mode is not for this example
        call(model)


@contextmanager
def _learning(model: nn.Module, *, modules: bool = True) -> Iterator[None]:
    with ExitStack() as stack:
        for module in model.modules():
            if modules and isinstance(module, Counterpart) and not _trained(module):
                module.calls = 0
                stack.enter_context(module.register_forward_pre_hook(_hook, with_kwargs=True))
        for forward in patches(model).values():
            forward.calibrating = True
            stack.callback(setattr, forward, "calibrating", False)
            if modules:
                forward.calls.clear()
        yield


def _hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if isinstance(module, Counterpart):
        with suspended():
            module.calibrate(*args, **kwargs)


def _trained(module: Counterpart) -> bool:
    """A BatchNorm that has seen batches knows its scale better than a few example inputs do."""
    return isinstance(module, UncentredBatchNorm) and bool(module.num_batches_tracked > 0)
