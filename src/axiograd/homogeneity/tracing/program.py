"""From a model to a program: a graph of operators, each with its place in the user's code."""

import contextlib
import copy
import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import Dim, ExportedProgram, ShapesCollection, default_decompositions, export
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from axiograd._calls import Leaves
from axiograd._state import TRACE_LOCK, captured_modules
from axiograd.homogeneity.rules import lookup
from axiograd.homogeneity.tracing.aliases import (
    is_plain,
    refuse_hidden_aliases,
    remove_idle_dropout,
    undeclared_aliases,
)
from axiograd.homogeneity.tracing.nodes import op_name, schema_of
from axiograd.homogeneity.tracing.places import record_user_lines
from axiograd.homogeneity.tracing.private_torch import inference_mode_shown
from axiograd.homogeneity.tracing.sizes import Sizes, sizes_of
from axiograd.homogeneity.tracing.transforms import Applied, from_transform


@dataclass(frozen=True)
class Program:
    """What the certificate walks over."""

    graph_module: fx.GraphModule
    #: The graph before functionalisation, where cuts of the gradient are still visible.
    original: fx.Graph
    #: Placeholder → (name, tensor) for parameters, buffers and lifted constants.
    constants: dict[str, tuple[str, Any]]
    #: Placeholders of what is not a tensor, such as a generator of the model's own.
    objects: dict[str, Any]
    #: Placeholder → index of the input leaf.
    inputs: dict[str, int]
    #: One per output leaf: the name of a node, or a constant.
    outputs: tuple[str | ConstantArgument, ...]
    sizes: Sizes
    #: The coarsest number format that the program computes in.
    precision: torch.dtype


class AsModule(nn.Module):
    """Any callable as a module; modules that it closes over are found by name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        for name, module in captured_modules(function):
            if name not in self._modules:
                self.add_module(name, module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


@contextlib.contextmanager
def untouched(model: Callable[..., Any] | None = None) -> Iterator[None]:
    """Run the export quietly, and leave random state, warnings and fast paths as they were."""
    quiet = contextlib.redirect_stderr(io.StringIO())
    with (
        TRACE_LOCK,  # the export, and what keeps it quiet, change the state of the whole process
        warnings.catch_warnings(),
        torch.random.fork_rng(),
        contextlib.nullcontext() if model is None else record_user_lines(model),
        inference_mode_shown(),
        torch.inference_mode(mode=False),
        torch.enable_grad(),
        quiet,
    ):
        fast_path = torch.backends.mha.get_fastpath_enabled()
        level = logging.root.manager.disable
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        torch.backends.mha.set_fastpath_enabled(value=False)
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(value=fast_path)
            logging.disable(level)


def _leave_inference(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.clone() if value.is_inference() else value.detach()


def trace(
    model: Callable[..., Any], arguments: Leaves, *, static: bool = False, axes: tuple[int, ...] = (0,)
) -> Program:
    """Export the model as it is, in its mode, on the example's shapes; raises what the export raises.

    Along `axes` inputs may have any size, as far as the export can follow.
    """
    module = model if isinstance(model, nn.Module) else AsModule(model)
    with untouched(model):
        if any(t.is_inference() for t in (*module.parameters(), *module.buffers())):
            module = copy.deepcopy(module)  # tensors that were made in inference mode cannot be exported, copies can
        values = [_leave_inference(leaf.value) for leaf in arguments.leaves]
        args, kwargs = arguments.rebuild(values)
        exported = _followed(module, args, kwargs, values, axes=() if static else axes)
        original = exported.graph
        opened = _without_rule(original)
        plain = is_plain(original)
        if opened or not plain:
            if not plain:
                remove_idle_dropout(exported.graph)
                undeclared = undeclared_aliases(exported.graph)
                refuse_hidden_aliases(undeclared)
                opened |= undeclared
            exported = exported.run_decompositions(_parts_of(opened))
    _require_real(exported)
    return _program(exported, original, arguments)


def _followed(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], values: list[Any], *, axes: tuple[int, ...]
) -> ExportedProgram:
    """The export, after function transforms have been applied where it does not follow them."""
    try:
        exported = _export(module, args, kwargs, values, axes=axes)
        _require_real(exported)
    except Exception as error:
        if not isinstance(error, LostTrackError) and not from_transform(error):
            raise
        exported = _export(Applied(module, args, kwargs), args, kwargs, values, axes=())
    return exported


def _export(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], values: list[Any], *, axes: tuple[int, ...]
) -> ExportedProgram:
    shapes = None
    tensors = [v for v in values if isinstance(v, Tensor) and v.dim() > 0]
    batch = {v.shape[0] for v in tensors}
    if axes and len(batch) == 1 and batch.pop() > 1:
        collection = ShapesCollection()
        for tensor in tensors:
            collection[tensor] = {axis: Dim.AUTO for axis in axes if axis < tensor.dim()}
        try:
            with _named_keywords(module, kwargs):
                shapes = collection.dynamic_shapes(module, args, kwargs)
                return export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
        except Exception:  # noqa: BLE001 - whatever the reason, an export with fewer free sizes decides
            return _export(module, args, kwargs, values, axes=axes[:-1])
    return export(module, args, kwargs, strict=False)


@contextlib.contextmanager
def _named_keywords(module: nn.Module, kwargs: dict[str, Any]) -> Iterator[None]:
    """Under a signature without `**`: torch.export counts what such a parameter takes twice, and frees no size."""
    known = inspect.signature(module.forward).parameters
    if all(one.kind is not one.VAR_KEYWORD for one in known.values()) or "forward" in vars(module):
        yield
        return
    plain = [one for one in known.values() if one.kind is not one.VAR_KEYWORD]
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in kwargs if name not in known]
    original = module.forward

    def forward(*args: Any, **given: Any) -> Any:
        return original(*args, **given)

    forward.__signature__ = inspect.Signature([*plain, *more])  # type: ignore[attr-defined]  # where `inspect` looks
    vars(module)["forward"] = forward
    try:
        yield
    finally:
        del vars(module)["forward"]


def _parts_of(names: set[str]) -> dict[Any, Callable[..., Any]]:
    """How torch takes operators apart: building the table takes longer than most proofs, and ATen's does not change."""
    whole = _decompositions() if all(name.startswith("aten::") for name in names) else dict(default_decompositions())
    return {op: how for op, how in whole.items() if getattr(schema_of(op), "name", "") in names}


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    return dict(default_decompositions())


def _without_rule(graph: fx.Graph) -> set[str]:
    """Operators whose result is used but that no rule knows; perhaps their parts are known."""
    names = {op_name(node) for node in graph.nodes if node.op == "call_function" and node.users}
    return {name for name in names if name and lookup(name) is None}


class LostTrackError(RuntimeError):
    """The export took a value that depends on the input for a constant."""


def _require_real(exported: ExportedProgram) -> None:
    """Refuse programs with constants that are not numbers: torch.func transforms leave such traces."""
    for node in exported.graph.nodes:
        if getattr(node.target, "__module__", "").startswith("torch._functorch"):
            raise LostTrackError(f"the export does not follow torch.func transforms ({node.target.__name__}).")
    fake = [name for name, value in exported.constants.items() if isinstance(value, FakeTensor)]
    if fake:
        raise LostTrackError("the export mistook a value that it computed for a constant.")


def _program(exported: ExportedProgram, original: fx.Graph, arguments: Leaves) -> Program:
    signature = exported.graph_signature
    constants: dict[str, tuple[str, Any]] = {}
    objects: dict[str, Any] = {}
    names: list[str] = []
    for spec in signature.input_specs:
        if spec.kind == InputKind.USER_INPUT:
            names.append(spec.arg.name)
        elif spec.kind == InputKind.CUSTOM_OBJ:
            objects[spec.arg.name] = exported.constants.get(str(spec.target))
        elif isinstance(spec.arg, TensorArgument) and spec.target is not None:
            name = spec.target
            value = exported.state_dict.get(name, exported.constants.get(name))
            constants[spec.arg.name] = (name, value)
    order = _leaf_order(exported, arguments)
    inputs = dict(zip(names, order, strict=True))
    outputs = tuple(
        spec.arg if isinstance(spec.arg, ConstantArgument) else spec.arg.name
        for spec in signature.output_specs
        if spec.kind == OutputKind.USER_OUTPUT
    )
    leaves = arguments.leaves
    sizes = sizes_of(exported, inputs, [leaf.name for leaf in leaves], [leaf.value for leaf in leaves])
    precision = _precision(exported.graph)
    return Program(exported.graph_module, original, constants, objects, inputs, outputs, sizes, precision)


def _leaf_order(exported: ExportedProgram, arguments: Leaves) -> list[int]:
    """Index into `arguments.leaves` of each user input; the export may reorder keyword arguments."""
    indices = list(range(len(arguments.leaves)))
    args, kwargs = arguments.rebuild(indices)
    spec = exported.call_spec.in_spec
    keys = list(kwargs)
    if spec is not None and kwargs:
        keys = list(spec.child(1).context) if hasattr(spec, "child") else list(spec.children_specs[1].context)
    return pytree.tree_leaves((args, {key: kwargs[key] for key in keys}))


def _precision(graph: fx.Graph) -> torch.dtype:
    formats = {
        value.dtype.to_real() if value.dtype.is_complex else value.dtype
        for node in graph.nodes
        for value in pytree.tree_leaves(node.meta.get("val"))
        if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())
    }
    return max(formats or {torch.float32}, key=lambda number_format: torch.finfo(number_format).eps)
