"""The output of a module in place of the inputs: what `layer=` attributes to."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from axiograd._calls import Call, Model, is_floating
from axiograd._names import choose_from
from axiograd._state import PARALLEL, compiled_from, modules_behind
from axiograd.attribution.passes import attribution_pass
from axiograd.errors import ConfigurationError, InputError

#: A module of the model, by its name or itself, or several.
Layer: TypeAlias = str | nn.Module | Sequence[str | nn.Module]


class _ReachedError(Exception):
    """All outputs that were asked for are there, and the rest of the model need not run."""


class FromLayer(nn.Module):
    """F as a function of what one of its modules returns, F(h, …), beside the arguments that the model had.

    The module runs, and what it returns is replaced by h, for this call alone. If it is called several times, or if
    there are several modules, h₁, h₂, … replace their outputs in the order of the calls.

    >>> model = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 1))
    >>> ids = torch.tensor([[0, 4]])
    >>> from_embeddings = FromLayer(model, "0")
    >>> h = model[0](ids)
    >>> torch.equal(from_embeddings(h, ids), model(ids)), torch.equal(from_embeddings(0 * h, ids), model[2].bias[None])
    (True, True)
    """

    def __init__(self, model: Model, layer: Layer) -> None:
        super().__init__()
        if isinstance(model, PARALLEL) or compiled_from(model) is not None:
            raise ConfigurationError(
                f"layer= looks into the model, which {type(model).__name__} does not allow: pass the module inside."
            )
        self.model = model
        if not isinstance(model, nn.Module):
            self.reached = nn.ModuleList(modules_behind(model))
        #: Not registered: they are modules of the model, and have their names there.
        self.layers = tuple(
            _found(model, one) for one in ([layer] if isinstance(layer, str | nn.Module) else list(layer))
        )
        if not self.layers:
            raise ConfigurationError("layer=[] names no module of the model.")
        names = {id(m): name for root in modules_behind(model) for name, m in root.named_modules()}
        #: How messages name what is replaced.
        self.title = " and ".join(repr(names.get(id(m)) or type(m).__name__) for m in self.layers)
        self.count: int | None = None

    @property
    def training(self) -> bool:
        """Whether the model is in train mode."""
        return any(root.training for root in modules_behind(self.model)) if hasattr(self, "layers") else False

    @training.setter
    def training(self, mode: bool) -> None:
        """The mode is the model's."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        count = self.count or 1
        waiting = list(args[:count])

        def substitute(output: Any) -> Any:
            leaves, structure = pytree.tree_flatten(output)
            for i, leaf in enumerate(leaves):
                if is_floating(leaf):
                    if not waiting:
                        raise InputError(self._other_count("more"))
                    leaves[i] = waiting.pop(0)
            return pytree.tree_unflatten(leaves, structure)

        with self._watched(substitute):
            found = self.model(*args[count:], **kwargs)
        if waiting:
            raise InputError(self._other_count("fewer"))
        return found

    def outputs_at(self, arguments: Call, *, create_graph: bool = False) -> Call:
        """The call of this function that equals the given call of the model: what the layer returns comes first."""
        found: list[Tensor] = []

        def take(output: Any) -> Any:
            tensors = [leaf for leaf in pytree.tree_leaves(output) if is_floating(leaf)]
            if not tensors:
                raise InputError(
                    f"the layer {self.title} returned {type(output).__name__} without a floating-point tensor, so that "
                    "there is nothing to attribute to."
                )
            found.extend(tensors)
            if self.count is not None and len(found) >= self.count:
                raise _ReachedError
            return output

        self._run(arguments, take, create_graph=create_graph)
        if not found:
            raise InputError(f"the layer {self.title} did not run in this call of the model: name one that does.")
        if self.count is None:
            self._refuse_chains(arguments, len(found))
            self.count = len(found)
        batch = next((len(v) for v in pytree.tree_leaves(arguments.values()) if isinstance(v, Tensor) and v.dim()), 0)
        for h in found:
            if not h.dim() or len(h) != batch:
                raise InputError(
                    f"the layer {self.title} returned a tensor of shape {tuple(h.shape)} for a batch of {batch}: "
                    "attributions need samples along the first dimension."
                )
        values = tuple(h if create_graph else h.detach() for h in found)
        n = len(values)
        return Call((*values, *arguments.positional), arguments.keyword, tuple(range(n)), n == 1, n)

    def baselines_at(
        self, baselines: Any, arguments: Call, *, create_graph: bool = False, of_inputs: bool = False
    ) -> Any:
        """Baselines for the layer's output; token ids are inputs, and become what the layer returns for them.

        With ``of_inputs`` that is so for all that can be inputs: None (zero), numbers, and tensors in their dimensions.
        """
        by_name = isinstance(baselines, Mapping)
        given = list(baselines.values()) if by_name else baselines
        values = [v for v in (given if isinstance(given, tuple | list) else [given]) if v is not None]
        ids = [isinstance(v, Tensor) and not v.is_floating_point() and v.dim() > 1 for v in values]
        if not (of_inputs and self._are_inputs(baselines, arguments)) and not (ids and all(ids)):
            return baselines
        return self.outputs_at(arguments.at(baselines), create_graph=create_graph).features

    def _are_inputs(self, baselines: Any, arguments: Call) -> bool:
        """Whether baselines have the dimensions of the inputs; if not, they are meant for the layer's output."""
        if isinstance(baselines, Mapping):
            return True
        several = isinstance(baselines, tuple | list)
        if several and len(baselines) != arguments.n_inputs:
            return False
        slots = range(arguments.n_inputs) if several else arguments.slots or (0,)
        values = arguments.values()
        places = [arguments.keyword[s] if isinstance(s, str) else values[s] for s in slots]
        pairs = zip(baselines if several else [baselines] * len(places), places, strict=True)
        return all(not isinstance(value, Tensor) or _fits(value, place) for value, place in pairs)

    def _run(self, arguments: Call, hook: Callable[[Any], Any], *, create_graph: bool) -> None:
        """One pass by which nothing changes; the pass that counts draws the same numbers again."""
        device = next((v.device for v in pytree.tree_leaves(arguments.values()) if isinstance(v, Tensor)), None)
        with ExitStack() as stack:
            stack.enter_context(
                attribution_pass(self, device or torch.device("cpu"), create_graph=create_graph, preserve=True)
            )
            if not create_graph:
                stack.enter_context(torch.no_grad())
            stack.enter_context(self._watched(hook))
            stack.enter_context(suppress(_ReachedError))
            self.model(*arguments.positional, **arguments.keyword)

    def _refuse_chains(self, arguments: Call, count: int) -> None:
        """Raise if one of several outputs is made from another: they cannot be held apart."""
        if count == 1:
            return
        leaves: list[Tensor] = []

        def look(output: Any) -> Any:
            parts, structure = pytree.tree_flatten(output)
            own = [i for i, part in enumerate(parts) if is_floating(part)]
            for part in (parts[i] for i in own if leaves and parts[i].requires_grad):
                if any(g is not None for g in torch.autograd.grad(part.sum(), leaves, allow_unused=True)):
                    raise ConfigurationError(
                        f"the layer {self.title} is called again on what was made from its own output, so that no "
                        "single output of it stands for all: name a layer that runs once, or several that do not feed "
                        "each other."
                    )
            fresh = {i: parts[i].detach().requires_grad_() for i in own}
            leaves.extend(fresh.values())
            return pytree.tree_unflatten([fresh.get(i, part) for i, part in enumerate(parts)], structure)

        self._run(arguments, look, create_graph=True)

    @contextmanager
    def _watched(self, hook: Callable[[Any], Any]) -> Iterator[None]:
        """Pass the layers' outputs through a function while this thread runs the model."""
        mine = threading.get_ident()

        def passed(_module: nn.Module, _args: Any, output: Any) -> Any:
            if threading.get_ident() != mine:
                return output
            if torch.is_grad_enabled():
                _refuse_checkpoints(self.title)
            return hook(output)

        with ExitStack() as stack:
            for layer in dict.fromkeys(self.layers):
                stack.enter_context(layer.register_forward_hook(passed))
            yield

    def _other_count(self, how: str) -> str:
        return (
            f"the layer {self.title} returned {how} floating-point tensors than the {self.count or 1} that are given: "
            "make a new method for calls of another kind."
        )


def _fits(value: Tensor, place: Tensor) -> bool:
    """Whether a tensor can stand for an input: of its kind, in its dimensions, one row for all or one for each."""
    if value.dim() == 0:
        return True
    sizes = zip(value.shape, place.shape, strict=False)
    alike = value.dim() == place.dim() and value.is_floating_point() == place.is_floating_point()
    return alike and all(own in {1, size} for own, size in sizes)


def _found(model: Model, layer: str | nn.Module) -> nn.Module:
    modules = {name: m for root in modules_behind(model) for name, m in root.named_modules()}
    if isinstance(layer, nn.Module):
        if all(layer is not m for m in modules.values()):
            raise ConfigurationError(f"layer={type(layer).__name__}(...) is not a module of the model.")
        return layer
    if not isinstance(layer, str):
        raise ConfigurationError(f"layer={layer!r}: expected a module of the model or its name.")
    if not isinstance(model, nn.Module):
        raise ConfigurationError(f"layer={layer!r}: a function has no names for modules; pass the module itself.")
    if layer not in modules or not layer:
        names = [name for name in modules if name]
        raise ConfigurationError(f"layer={layer!r} is not a module of the model: {choose_from(layer, names)}.")
    found: nn.Module = modules[layer]
    return found


def _refuse_checkpoints(title: str) -> None:
    """A checkpointed block runs again in the backward pass, when the output is no longer replaced."""
    frame: Any = sys._getframe(1)  # noqa: SLF001 - who calls is the only trace of it
    while frame is not None and frame.f_code is not FromLayer.forward.__code__:
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            raise ConfigurationError(
                f"the layer {title} runs inside torch.utils.checkpoint, which runs it again in the backward pass, "
                "where its output is not replaced: switch checkpointing off (gradient_checkpointing_disable())."
            )
        frame = frame.f_back
