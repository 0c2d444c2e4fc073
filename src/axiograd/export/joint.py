"""Forward pass, input gradient and completeness gap as one static graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
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
from axiograd.homogeneity.nodes import with_bodies, written
from axiograd.homogeneity.program import AsModule, remove_idle_dropout, untouched

#: How the graph is told what to explain: one index per sample, or one weight per output.
Asked = Literal["index", "weights"]
IMAGES = 4  # [batch, channels, height, width]


@dataclass(frozen=True)
class Joint:
    """The graph, and what its inputs and outputs are called."""

    #: Forward and backward operators, the weights inside.
    graph: fx.GraphModule
    inputs: tuple[str, ...]
    #: Those of the inputs that are attributed.
    features: tuple[str, ...]
    outputs: tuple[str, ...]
    #: Per input (the target included), which dimensions take any size: {dimension: name}.
    dynamic: tuple[dict[int, str], ...]
    #: Blank values for the inputs, of the sizes that the graph was made with.
    examples: tuple[Tensor, ...]
    #: The nodes of the model alone, which know their lines.
    forward: tuple[fx.Node, ...] = ()

    @cached_property
    def program(self) -> ExportedProgram:
        """The graph as torch.export has it, with what guards its inputs; which traces all of it once more."""
        with untouched(self.graph):
            warnings.simplefilter("ignore")
            shapes = tuple(dict.fromkeys(each, Dim.AUTO) for each in self.dynamic)
            return export(self.graph, self.examples, dynamic_shapes=shapes)


class _Flat(nn.Module):
    """The model as a function of tensors alone, in the order of the graph's inputs, returning its logits."""

    def __init__(self, model: Model, arguments: Call, where: Sequence[int | str]) -> None:
        super().__init__()
        self.model = model if isinstance(model, nn.Module) else AsModule(model)
        self._arguments, self._where = arguments, tuple(where)

    def forward(self, tensors: list[Tensor]) -> Tensor:
        positional, keyword = list(self._arguments.positional), dict(self._arguments.keyword)
        for slot, tensor in zip(self._where, tensors, strict=True):
            if isinstance(slot, int):
                positional[slot] = tensor
            else:
                keyword[slot] = tensor
        return logits(self.model(*positional, **keyword))


def join(
    model: Model,
    arguments: Call,
    *,
    degree: float,
    baselines: Sequence[Tensor] | None,
    asked: Asked = "index",
    pool: int | None = None,
    sizes: bool = False,
    any_batch: bool = True,
) -> Joint:
    """(x, target) ↦ (F(x), (x − b)·∇F_target(x)/k, Σ attribution − F_target(x)) as a program of forward operators."""
    constant = arguments.batch == 1 and any_batch  # for which the export would take a batch of one
    twice = arguments.rows(slice(None), 2) if constant else arguments
    where, names = tensor_slots(twice)
    if pool is not None:
        _check_pool(pool, twice)
    features = [where.index(slot) for slot in twice.slots]
    # Copies: of one tensor that is given twice, the export would make one input.
    tensors = [(twice.positional[s] if isinstance(s, int) else twice.keyword[s]).detach().clone() for s in where]
    free = [_free(tensor, twice.batch if any_batch else None, sizes=sizes) for tensor in tensors]
    free.append({0: "batch"} if any_batch else {})
    with untouched(model), sdpa_kernel(SDPBackend.MATH):  # the other kernels' gradients are no operators elsewhere
        warnings.simplefilter("ignore")
        flat = _Flat(model, twice, where)
        forward = export(flat, (tensors,), dynamic_shapes=([dict.fromkeys(each, Dim.AUTO) for each in free[:-1]],))
        remove_idle_dropout(forward.graph)
        if any(written(node) for node in with_bodies(forward.graph)):
            forward = forward.run_decompositions({})
        write_plainly(forward.graph)
        graph, ask = _differentiated(forward, features, _Explain(degree, baselines, asked, pool), twice.batch)
        # The file keeps them: no data of the user's.
        examples = (*(torch.zeros_like(each) for each in tensors), ask)
        whole = _with_weights(graph, forward, baselines or (), [*names, _asked_name(asked)])
    dynamic = _dynamic(whole, free)
    for i in features:
        _check_open(names[i], tensors[i], set(free[i]) - set(dynamic[i]))
    single = len(features) == 1
    given = ["attribution" if single else f"attribution_{names[i]}" for i in features]
    pooled = [] if pool is None else [name.replace("attribution", "pooled") for name in given]
    return Joint(
        whole,
        (*names, _asked_name(asked)),
        tuple(names[i] for i in features),
        ("output", *given, *pooled, "gap"),
        dynamic,
        examples,
        tuple(forward.graph.nodes),
    )


@dataclass(frozen=True)
class _Explain:
    """From outputs to what the graph returns."""

    degree: float
    baselines: Sequence[Tensor] | None
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

    def __call__(self, run: Callable[[Sequence[Tensor]], Tensor], features: Sequence[Tensor], ask: Tensor) -> Any:
        x = [feature.detach().requires_grad_() for feature in features]
        with torch.enable_grad():
            output = run([each.clone() for each in x])
            score = self.score(output, ask)
            if not score.requires_grad:
                raise DisconnectedError("the model's output does not depend on its floating-point inputs.")
            gradients = torch.autograd.grad(score.sum(), x, materialize_grads=True)
        attributions = []
        for i, (feature, gradient) in enumerate(zip(features, gradients, strict=True)):
            away = feature if self.baselines is None else feature - self.baselines[i]
            product = away * gradient
            attributions.append(product if self.degree == 1 else product / self.degree)
        # Comparisons with NaN are all false, and what a runtime's maximum makes of it differs: so it is said outright.
        finite = torch.stack([(feature - feature == 0).flatten(1).all(1) for feature in features]).all(0)
        nothing = torch.full((), torch.nan, dtype=output.dtype, device=output.device)
        total = torch.stack([each.flatten(1).sum(1) for each in attributions]).sum(0)

        def defined(value: Tensor) -> Tensor:
            value = value.detach()
            return torch.where(finite.reshape(-1, *[1] * (value.dim() - 1)), value, nothing)

        pooled = [] if self.pool is None else [window_sums(each, self.pool) for each in attributions]
        return tuple(defined(each) for each in (output, *attributions, *pooled, total - score))


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


def _differentiated(
    forward: ExportedProgram, features: Sequence[int], explain: _Explain, batch: int
) -> tuple[fx.GraphModule, Tensor]:
    """The forward program traced once more together with its gradient; and an example of what is asked."""
    places = [node.meta["val"] for node in forward.graph.nodes if node.op == "placeholder"]
    n_weights = sum(spec.kind != InputKind.USER_INPUT for spec in forward.graph_signature.input_specs)
    result = forward.graph.output_node().args[0][-1].meta["val"]  # its one output
    mode = places[n_weights].fake_mode
    own = [] if explain.baselines is None else [mode.from_tensor(each) for each in explain.baselines]
    if explain.asked == "weights":
        example = torch.ones([batch, *result.shape[1:]], dtype=result.dtype)
    else:
        example = torch.full((batch,), -1)
    with mode:
        rows = places[n_weights + features[0]].shape[0]
        if result.shape[:1] != (rows,):
            raise InputError(
                f"the model's output has the shape {tuple(result.shape)} for an input of "
                f"{tuple(places[n_weights + features[0]].shape)}: each sample needs its row. Give the examples a batch "
                "dimension, and let the model keep it."
            )
        ask = torch.empty([rows, *example.shape[1:]], dtype=example.dtype)

    def both(*values: Tensor) -> Any:
        weights, tensors = values[:n_weights], list(values[n_weights : len(places)])
        *baselines, asked = values[len(places) :]

        def run(scaling: Sequence[Tensor]) -> Tensor:
            for i, each in zip(features, scaling, strict=True):
                tensors[i] = each
            outputs: Sequence[Tensor] = fx.Interpreter(forward.graph_module).run(*weights, *tensors)
            return outputs[-1]

        chosen = replace(explain, baselines=baselines or None)
        return chosen(run, [tensors[i] for i in features], asked)

    with mode, enable_python_dispatcher():
        graph = make_fx(both, decomposition_table=decompositions())(*places, *own, ask)
    graph.graph.eliminate_dead_code()
    return graph, example


def _with_weights(
    graph: fx.GraphModule, forward: ExportedProgram, baselines: Sequence[Tensor], names: Sequence[str]
) -> fx.GraphModule:
    """The graph with its weights inside, under the names that they have in the model."""
    held: list[tuple[str, Tensor] | None] = []
    for spec in forward.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT or spec.target is None:
            held.append(None)
        else:
            value = forward.state_dict.get(spec.target, forward.constants.get(spec.target))
            name = spec.target.removeprefix("model.").replace(".", "_")
            held.append((f"weight_{name}", value.detach()))
    held += [(f"baseline_{i}", each) for i, each in enumerate(baselines)]
    root, left = nn.Module(), iter(names)
    taken = {*names, *(node.name for node in graph.graph.nodes)}
    for node in graph.graph.nodes:
        if node.name in names:  # an input may be called `relu`
            node.name = _other_than(taken, node.name)
    places = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for node, value in zip_longest(places, held):
        if value is None:
            node.name = node.target = next(left)
            continue
        name = _other_than(taken, value[0])  # of `a.b` and `a_b`
        root.register_buffer(name, value[1])
        with graph.graph.inserting_before(node):
            attribute = graph.graph.get_attr(name)
        attribute.meta.update(node.meta)
        node.replace_all_uses_with(attribute)
        graph.graph.erase_node(node)
    return fx.GraphModule(root, graph.graph)


def _other_than(taken: set[str], name: str) -> str:
    """The name, longer by as much as makes it a new one."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def tensor_slots(arguments: Call) -> tuple[list[int | str], list[str]]:
    """Where the tensors of a call are, and what the graph calls them; everything else is a constant."""
    every: list[tuple[int | str, Any]] = [*enumerate(arguments.positional), *arguments.keyword.items()]
    for slot, value in every:
        if not isinstance(value, Tensor) and any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(value)):
            raise InputError(
                f"input {slot!r} is a {type(value).__name__} with tensors in it: an exported graph takes tensors. Wrap "
                "the model in a function that takes them one by one."
            )
    where = [slot for slot, value in every if isinstance(value, Tensor)]
    alone = len(where) == 1
    names = [slot if isinstance(slot, str) else "input" if alone else f"input_{slot}" for slot in where]
    odd = [name for name in names if not name.isidentifier()]
    if odd:
        raise InputError(f"input {odd[0]!r}: a graph's inputs have names that Python's variables can have.")
    own = [n for n in names if n in {"target", "weights", "output", "gap"} or n.startswith(("attribution", "pooled"))]
    if own:
        raise InputError(
            f"input {own[0]!r} has the name of one of the graph's own. Wrap the model in a function that calls it "
            "differently."
        )
    return where, names


def _free(tensor: Tensor, batch: int | None, *, sizes: bool) -> dict[int, str]:
    """Dimensions that shall take any size."""
    found = {0: "batch"} if tensor.dim() and len(tensor) == batch else {}
    if sizes and tensor.dim() == IMAGES:
        found |= {2: "height", 3: "width"}
    return found


def _dynamic(graph: fx.GraphModule, wanted: Sequence[dict[int, str]]) -> tuple[dict[int, str], ...]:
    """Those of the wanted dimensions that the model left open: no operator has asked for their number."""
    values = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    return tuple(
        {i: name for i, name in each.items() if not is_concrete_int(value.shape[i])}
        for each, value in zip(wanted, values, strict=True)
    )


def _check_open(name: str, tensor: Tensor, lost: set[int]) -> None:
    """The model runs with other sizes, so its graph has to."""
    if lost:
        i = min(lost)
        raise ExportError(
            f"the model takes any size of dimension {i} of {name!r}, and its graph takes {tensor.shape[i]} alone, "
            "because the code makes it a number: for len(x) or int(x.shape[0]), say x.shape[0]."
        )


def _check_pool(pool: Any, arguments: Call) -> None:
    wrong = [tuple(feature.shape) for feature in arguments.features if feature.dim() != IMAGES]
    if isinstance(pool, bool) or not isinstance(pool, int) or pool < 1 or wrong:
        raise InputError(
            f"pool={pool!r} for inputs of shape {(wrong or [tuple(f.shape) for f in arguments.features])[0]}: windows "
            "of at least one pixel are summed in images, [batch, channels, height, width]."
        )


def narrowed(baseline: Tensor, name: int | str) -> Tensor:
    """A baseline without its batch, and with one number where it is the same along a whole dimension.

    >>> narrowed(torch.zeros(3, 1, 1).expand(2, 3, 8, 8), 0).shape
    torch.Size([1, 3, 1, 1])
    """
    small = baseline[tuple(slice(0, 1) if step == 0 else slice(None) for step in baseline.stride())]
    if len(small) > 1 and bool((small != small[:1]).any()):
        raise BaselineError(
            f"the baseline of input {name!r} differs from sample to sample: a graph has one for all. Give one without "
            "a batch dimension."
        )
    return small[:1].detach().clone()


def _asked_name(asked: Asked) -> str:
    return "target" if asked == "index" else "weights"
