"""Forward pass, input gradient and completeness gap as one static graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch._dispatch.python import enable_python_dispatcher
from torch.export import Dim, ExportedProgram, export
from torch.export.graph_signature import InputKind
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import is_concrete_int
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from axiograd._calls import Call, Model, logits
from axiograd.errors import BaselineError, DisconnectedError, ExportError, InputError
from axiograd.export.backward import decompositions, write_plainly
from axiograd.export.card import Signature
from axiograd.homogeneity.nodes import placeholders, with_bodies, written
from axiograd.homogeneity.program import AsModule, remove_idle_dropout, untouched

#: How the graph is told what to explain: one index per sample, or one weight per output.
Asked = Literal["index", "weights"]
IMAGES = 4  # [batch, channels, height, width]


@dataclass(frozen=True)
class Joint:
    """The graph, and what its inputs and outputs are called."""

    #: Forward and backward operators, of the constants, the model's inputs and what is asked.
    graph: fx.GraphModule
    #: Weights and baselines.
    constants: dict[str, Tensor]
    #: Inputs, the target included, and outputs: names, dtypes, sizes.
    inputs: Signature
    outputs: Signature
    #: Zeros for the inputs, of the sizes that the graph was made with.
    examples: tuple[Tensor, ...]

    @cached_property
    def program(self) -> ExportedProgram:
        """The graph as torch.export has it."""
        with untouched(self.graph):
            warnings.simplefilter("ignore")
            shapes = tuple(
                {i: Dim.AUTO for i, s in enumerate(sizes) if isinstance(s, str)} for *_, sizes in self.inputs
            )
            return export(_WithConstants(self), self.examples, dynamic_shapes=(shapes,))


class _WithConstants(nn.Module):
    """The graph as a function of its inputs alone."""

    def __init__(self, joint: Joint) -> None:
        super().__init__()
        self.graph = joint.graph
        for i, (name, value) in enumerate(joint.constants.items()):
            self.register_buffer(f"c{i}_{name.replace('.', '_')}", value)  # `a.b` and `a_b` are two

    def forward(self, *inputs: Tensor) -> Any:
        return self.graph(*self.buffers(), *inputs)


class _Flat(nn.Module):
    """The model as a function of tensors alone, in the order of the graph's inputs, returning its logits."""

    def __init__(self, model: Model, call: Call, slots: Sequence[int | str]) -> None:
        super().__init__()
        self.model = model if isinstance(model, nn.Module) else AsModule(model)
        self._call, self._slots = call, tuple(slots)

    def forward(self, tensors: list[Tensor]) -> Tensor:
        positional, keyword = list(self._call.positional), dict(self._call.keyword)
        for slot, tensor in zip(self._slots, tensors, strict=True):
            if isinstance(slot, int):
                positional[slot] = tensor
            else:
                keyword[slot] = tensor
        return logits(self.model(*positional, **keyword))


@dataclass(frozen=True)
class Explain:
    """From outputs to what the graph returns."""

    degree: float
    asked: Asked
    pool: int | None

    def score(self, output: Tensor, ask: Tensor) -> Tensor:
        """One scalar per sample; an index of −1 is the largest output's."""
        flat = output.flatten(1) if output.dim() > 1 else output[:, None]
        if self.asked == "weights":
            return (flat * ask.flatten(1)).sum(1)
        largest = flat.detach().argmax(1)
        # Below −1 runtimes would count from the end: such an index is sent out of range, where they all complain.
        index = torch.where(ask == -1, largest, torch.where(ask < 0, flat.shape[1], ask))
        return flat.gather(1, index[:, None]).squeeze(1)

    def example(self, output: Tensor) -> Tensor:
        """What is asked, for such an output."""
        if self.asked == "weights":
            return torch.zeros_like(output)
        return output.new_zeros(output.shape[:1], dtype=torch.int64)

    def __call__(
        self, run: Callable[[list[Tensor]], Tensor], features: list[Tensor], baselines: list[Tensor], ask: Tensor
    ) -> tuple[Tensor, ...]:
        """Output, attributions, pooled attributions, gap."""
        x = [feature.detach().requires_grad_() for feature in features]
        with torch.enable_grad():
            output = run([each.clone() for each in x])
            score = self.score(output, ask)
            if not score.requires_grad:
                raise DisconnectedError("the model's output does not depend on its floating-point inputs.")
            gradients = torch.autograd.grad(score.sum(), x, materialize_grads=True)
        away = [x - b for x, b in zip(features, baselines, strict=True)] if baselines else features
        attributions = [a * g / self.degree for a, g in zip(away, gradients, strict=True)]
        total = torch.stack([each.flatten(1).sum(1) for each in attributions]).sum(0)
        pooled = [] if self.pool is None else [window_sums(each, self.pool) for each in attributions]
        # Comparisons with NaN are all false, and what a runtime's maximum makes of it differs: so it is said outright.
        finite = torch.stack([(x - x == 0).flatten(1).all(1) for x in features]).all(0)
        nothing = torch.full((), torch.nan, dtype=output.dtype, device=output.device)
        answers = [each.detach() for each in (output, *attributions, *pooled, total - score)]
        return tuple(torch.where(finite.reshape(-1, *[1] * (a.dim() - 1)), a, nothing) for a in answers)


def window_sums(attribution: Tensor, window: int) -> Tensor:
    """Attributions summed over channels and windows of pixels; the last windows may be smaller, and nothing is lost.

    >>> window_sums(torch.ones(1, 3, 5, 4), 4)
    tensor([[[48.],
             [12.]]])
    """
    summed = attribution.sum(1, keepdim=True)
    height, width = summed.shape[-2:]
    padded = F.pad(summed, (0, -width % window, 0, -height % window))
    windows: Tensor = padded.unflatten(-1, (-1, window)).unflatten(-3, (-1, window))
    return windows.sum((-1, -3)).squeeze(1)


def join(model: Model, call: Call, explain: Explain, *, baselines: Sequence[Tensor] = (), sizes: bool = False) -> Joint:
    """(x, target) ↦ (F(x), (x − b)·∇F_target(x)/k, Σ attribution − F_target(x)) as a graph of forward operators."""
    if call.batch == 1:  # which the export would take for a constant
        call = call.rows(slice(None), 2)
    if explain.pool is not None:
        _check_pool(explain.pool, call)
    slots, names = tensor_slots(call)
    # Copies: of one tensor that is given twice, the export would make one input.
    tensors = [(call.positional[s] if isinstance(s, int) else call.keyword[s]).detach().clone() for s in slots]
    free = [_free(tensor, call.batch, sizes=sizes) for tensor in tensors]
    features = [slots.index(slot) for slot in call.slots]
    with untouched(model), sdpa_kernel(SDPBackend.MATH):  # the other kernels' gradients are no operators elsewhere
        warnings.simplefilter("ignore")
        dynamic = [dict.fromkeys(each, Dim.AUTO) for each in free]
        forward = export(_Flat(model, call, slots), (tensors,), dynamic_shapes=(dynamic,))
        remove_idle_dropout(forward.graph)
        if any(written(node) for node in with_bodies(forward.graph)):
            forward = forward.run_decompositions({})
        write_plainly(forward.graph)
        graph = _differentiated(forward, features, explain, baselines)
    constants = _weights(forward) | {f"baseline_{i}": baseline for i, baseline in enumerate(baselines)}
    returned: Any = graph.graph.output_node().args[0]
    results = [node.meta["val"] for node in returned]
    values = [node.meta["val"] for node in placeholders(graph.graph)[len(constants) :]]
    symbols = _symbols(names, free, values)
    output = torch.zeros(call.batch, *results[0].shape[1:], dtype=results[0].dtype)
    alone = len(features) == 1
    attributions = ["attribution" if alone else f"attribution_{names[i]}" for i in features]
    pooled = [] if explain.pool is None else [name.replace("attribution", "pooled") for name in attributions]
    return Joint(
        graph,
        constants,
        _signature([*names, "target" if explain.asked == "index" else "weights"], values, symbols),
        _signature(["output", *attributions, *pooled, "gap"], results, symbols),
        (*(torch.zeros_like(each) for each in tensors), explain.example(output)),
    )


def _differentiated(
    forward: ExportedProgram, features: Sequence[int], explain: Explain, baselines: Sequence[Tensor]
) -> fx.GraphModule:
    """The forward program traced once more together with its gradient."""
    places = [node.meta["val"] for node in placeholders(forward.graph)]
    n_weights = len(_weights(forward))
    output = forward.graph.output_node().args[0][-1].meta["val"]
    x = places[n_weights + features[0]]
    if output.shape[:1] != x.shape[:1]:
        raise InputError(
            f"the model's output has the shape {tuple(output.shape)} for an input of {tuple(x.shape)}: each sample "
            "needs its row. Give the examples a batch dimension, and let the model keep it."
        )
    mode = x.fake_mode
    with mode:
        ask = explain.example(output)

    def both(*values: Tensor) -> Any:
        weights, origins = values[:n_weights], list(values[n_weights : n_weights + len(baselines)])
        *tensors, asked = values[n_weights + len(baselines) :]

        def run(scaling: list[Tensor]) -> Tensor:
            for i, each in zip(features, scaling, strict=True):
                tensors[i] = each
            outputs: Sequence[Tensor] = fx.Interpreter(forward.graph_module).run(*weights, *tensors)
            return outputs[-1]

        return explain(run, [tensors[i] for i in features], origins, asked)

    with mode, enable_python_dispatcher():
        fakes = [mode.from_tensor(baseline) for baseline in baselines]
        weights, tensors = places[:n_weights], places[n_weights:]
        graph = make_fx(both, decomposition_table=decompositions())(*weights, *fakes, *tensors, ask)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


def _weights(forward: ExportedProgram) -> dict[str, Tensor]:
    """What a program holds, in the order of its first placeholders."""
    targets = [s.target for s in forward.graph_signature.input_specs if s.kind != InputKind.USER_INPUT]
    held = {**forward.constants, **forward.state_dict}
    return {str(target).removeprefix("model."): held[target].detach() for target in targets}


def tensor_slots(call: Call) -> tuple[list[int | str], list[str]]:
    """Where the tensors of a call are, and what the graph calls them; everything else is a constant."""
    every: list[tuple[int | str, Any]] = [*enumerate(call.positional), *call.keyword.items()]
    for slot, value in every:
        if not isinstance(value, Tensor) and any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(value)):
            raise InputError(
                f"input {slot!r} is a {type(value).__name__} with tensors in it: an exported graph takes tensors. Wrap "
                "the model in a function that takes them one by one."
            )
    slots = [slot for slot, value in every if isinstance(value, Tensor)]
    names = [slot if isinstance(slot, str) else "input" if len(slots) == 1 else f"input_{slot}" for slot in slots]
    for name in names:
        if name in {"target", "weights", "output", "gap"} or name.startswith(("attribution", "pooled")):
            raise InputError(
                f"input {name!r} has the name of one of the graph's own. Wrap the model in a function that calls it "
                "differently."
            )
    return slots, names


def _free(tensor: Tensor, batch: int, *, sizes: bool) -> dict[int, str]:
    """Dimensions that shall take any size."""
    found = {0: "batch"} if tensor.dim() and len(tensor) == batch else {}
    return found | ({2: "height", 3: "width"} if sizes and tensor.dim() == IMAGES else {})


def _symbols(names: Sequence[str], free: Sequence[dict[int, str]], values: Sequence[Tensor]) -> dict[str, str]:
    """What the tracer's symbols stand for; a size that it has fixed is an error."""
    found: dict[str, str] = {}
    for name, each, value in zip(names, free, values, strict=False):
        for i, what in each.items():
            if is_concrete_int(value.shape[i]):
                raise ExportError(
                    f"the graph takes {value.shape[i]} alone for the {what} of {name!r}: the model fits one size, or "
                    "its code makes the size a number. For len(x) or int(x.shape[0]), say x.shape[0]."
                )
            found.setdefault(str(value.shape[i]), what)
    return found


def _signature(names: Sequence[str], values: Sequence[Tensor], symbols: dict[str, str]) -> Signature:
    return tuple(
        (
            name,
            str(value.dtype).removeprefix("torch."),
            tuple(
                int(size) if is_concrete_int(size) else symbols.get(str(size), f"{name}_{i}")
                for i, size in enumerate(value.shape)
            ),
        )
        for name, value in zip(names, values, strict=True)
    )


def _check_pool(pool: Any, call: Call) -> None:
    shape = tuple(call.features[0].shape)
    if not isinstance(pool, int) or pool < 1 or len(shape) != IMAGES:
        raise InputError(
            f"pool={pool!r} for inputs of shape {shape}: windows of at least one pixel are summed in images, "
            "[batch, channels, height, width]."
        )


def narrowed(baseline: Tensor, slot: int | str) -> Tensor:
    """A baseline without its batch, and with one number where it is the same along a whole dimension.

    >>> narrowed(torch.zeros(3, 1, 1).expand(2, 3, 8, 8), 0).shape
    torch.Size([1, 3, 1, 1])
    """
    small = baseline[tuple(slice(0, 1) if step == 0 else slice(None) for step in baseline.stride())]
    if len(small) > 1 and bool((small != small[:1]).any()):
        raise BaselineError(
            f"the baseline of input {slot!r} differs from sample to sample: a graph has one for all. Give one without "
            "a batch dimension."
        )
    return small[:1].detach().clone()
