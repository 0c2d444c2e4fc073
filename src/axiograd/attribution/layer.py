"""The output of a module in place of the inputs: what `layer=` attributes to."""

from __future__ import annotations

import sys
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
from axiograd.errors import BaselineError, ConfigurationError, InputError

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
                f"layer= needs the modules of the model, which {type(model).__name__} hides: pass the module inside it."
            )
        self.model = model
        roots = modules_behind(model)
        if not isinstance(model, nn.Module):
            self.reached = nn.ModuleList(roots)
        modules = {name: module for root in roots for name, module in root.named_modules()}
        named = [layer] if isinstance(layer, str | nn.Module) else list(layer)
        #: Not registered: they are modules of the model, and have their names there.
        self.layers = tuple(_found(one, modules) for one in named)
        names = {id(module): name for name, module in modules.items()}
        #: How messages name what is replaced.
        self.title = " and ".join(repr(names[id(m)] or type(m).__name__) for m in self.layers)
        #: How many tensors the layers return in a call, known from the first one.
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
        waiting: list[Tensor] = list(args[:count])

        def substitute(_: Tensor) -> Tensor:
            if not waiting:
                raise InputError(self._other_count("more"))
            return waiting.pop(0)

        with self._replaced(substitute):
            found = self.model(*args[count:], **kwargs)
        if waiting:
            raise InputError(self._other_count("fewer"))
        return found

    def outputs_at(self, arguments: Call, *, create_graph: bool = False) -> Call:
        """The call of this function that equals the given call of the model: what the layer returns comes first."""
        found: list[Tensor] = []
        cut: list[Tensor] = []

        def take(output: Tensor) -> Tensor:
            if self.count is None and cut and output.requires_grad:
                self._refuse_chain(output, cut)
            found.append(output if create_graph else output.detach())
            if self.count is not None and len(found) == self.count:
                raise _ReachedError
            cut.append(output.detach().requires_grad_())
            return cut[-1].clone()  # what follows may work in place

        tensors = [v for v in pytree.tree_leaves(arguments.values()) if isinstance(v, Tensor) and v.dim()]
        device = tensors[0].device if tensors else torch.device("cpu")
        # A pass by which nothing changes; the pass that counts draws the same numbers again.
        with (
            attribution_pass(self, device, create_graph=create_graph, preserve=True),
            torch.set_grad_enabled(create_graph or self.count is None),
            self._replaced(take),
            suppress(_ReachedError),
        ):
            self.model(*arguments.positional, **arguments.keyword)
        if not found:
            raise InputError(
                f"the layer {self.title} did not run in this call of the model, or returned no floating-point tensor: "
                "name one that does."
            )
        self.count = n = len(found)
        for h in found:
            if not h.dim() or len(h) != len(tensors[0]):
                raise InputError(
                    f"the layer {self.title} returned a tensor of shape {tuple(h.shape)} for a batch of "
                    f"{len(tensors[0])}: attributions need samples along the first dimension."
                )
        return Call((*found, *arguments.positional), arguments.keyword, tuple(range(n)), n == 1, n)

    def baselines_at(
        self, baselines: Any, arguments: Call, *, create_graph: bool = False, of_inputs: bool = False
    ) -> Any:
        """Baselines for the layer's output; token ids are inputs, and become what the layer returns for them.

        With ``of_inputs`` that is so for all that fits the inputs: None (zero), numbers, and tensors of their shape.
        """
        values = [v for v in pytree.tree_leaves(baselines) if v is not None]
        are_ids = [isinstance(v, Tensor) and not v.is_floating_point() and v.dim() > 1 for v in values]
        if not of_inputs and not (values and all(are_ids)):
            return baselines
        try:
            given = arguments.at(baselines)
        except BaselineError:
            if isinstance(baselines, Mapping) or not values:
                raise
            return baselines
        return self.outputs_at(given, create_graph=create_graph).features

    @contextmanager
    def _replaced(self, replace: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """Pass the floating-point tensors that the layers return through a function."""

        def hook(_module: nn.Module, _args: Any, output: Any) -> Any:
            if torch.is_grad_enabled():
                _refuse_checkpoints(self.title)
            return pytree.tree_map(lambda part: replace(part) if is_floating(part) else part, output)

        with ExitStack() as stack:
            for layer in dict.fromkeys(self.layers):
                stack.enter_context(layer.register_forward_hook(hook))
            yield

    def _refuse_chain(self, output: Tensor, before: list[Tensor]) -> None:
        """Raise if one of several outputs is made from another: they cannot be held apart."""
        with_gradient = torch.autograd.grad(output.sum(), before, retain_graph=True, allow_unused=True)
        if any(g is not None for g in with_gradient):
            raise ConfigurationError(
                f"the layer {self.title} is called again on a value computed from its own output, so no single "
                "output of it stands for all: name a layer that runs once, or several that do not feed each other."
            )

    def _other_count(self, how: str) -> str:
        return (
            f"the layer {self.title} returned {how} floating-point tensors than the {self.count or 1} that are given: "
            "make a new method for calls of another kind."
        )


def _found(layer: Any, modules: Mapping[str, nn.Module]) -> nn.Module:
    if isinstance(layer, nn.Module):
        if all(layer is not module for module in modules.values()):
            raise ConfigurationError(f"layer={type(layer).__name__}(...) is not a module of the model.")
        return layer
    if layer not in modules or not layer:
        names = [name for name in modules if name]
        raise ConfigurationError(f"layer={layer!r} is not a module of the model: {choose_from(str(layer), names)}.")
    return modules[layer]


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
