"""From a model to a program: a graph of known operators, its constants, inputs, outputs and free sizes.

The export is read as it is where every value in it keeps its name. Where memory is overwritten that an older name still
reads, the program is functionalised.
"""

import contextlib
import copy
import inspect
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import Dim, ExportedProgram, ShapesCollection, default_decompositions, export
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from axiograd._calls import Leaves, scalable
from axiograd._state import TRACE_LOCK, attributes_restored, captured_modules
from axiograd.homogeneity.nodes import (
    Memory,
    is_idle_dropout,
    op_name,
    schema_of,
    undeclared_aliases,
    with_bodies,
    written,
)
from axiograd.homogeneity.rules import lookup
from axiograd.homogeneity.sizes import Sizes, sizes_of


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


class UntraceableError(RuntimeError):
    """The export does not show what the model computes."""


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


def trace(model: Callable[..., Any], arguments: Leaves, *, axes: tuple[int, ...]) -> Program:
    """Export the model as it is, in its mode, on the example's shapes; raises what the export raises.

    Along `axes` inputs may have any size, as far as the export can follow.
    """
    module = model if isinstance(model, nn.Module) else AsModule(model)
    with untouched(model):
        if any(t.is_inference() for t in (*module.parameters(), *module.buffers())):
            module = copy.deepcopy(module)  # tensors that were made in inference mode cannot be exported, copies can
        args, kwargs = arguments.copies()
        with _exportable(module, kwargs):
            exported = _export(module, args, kwargs, axes=axes)
        _require_real(exported)
        original = exported.graph
        unknown = _without_rule(original)
        if reads_overwritten(original):
            exported = _functionalised(exported, unknown)
        elif unknown:
            exported = exported.run_decompositions(_parts_of(unknown))
    return _program(exported, original, arguments)


@contextlib.contextmanager
def untouched(model: Callable[..., Any]) -> Iterator[None]:
    """Run the export quietly, and leave random state, warnings and fast paths as they were."""
    with (
        TRACE_LOCK,  # the export, and what keeps it quiet, change the state of the whole process
        warnings.catch_warnings(),
        torch.random.fork_rng(),
        _user_lines(model),
        torch.inference_mode(mode=False),
        torch.enable_grad(),
        contextlib.redirect_stderr(io.StringIO()),
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


@contextlib.contextmanager
def _user_lines(model: Callable[..., Any]) -> Iterator[None]:
    """Let the export remember lines in the user's own functions, not in methods called `forward` alone."""
    anchors: set[tuple[str, str]] = getattr(torch.fx.proxy, "_STACK_TRACE_ANCHORS", set())
    added = {(f.__code__.co_filename, f.__code__.co_name) for f in _functions(model)} - anchors
    anchors.update(added)
    try:
        yield
    finally:
        anchors.difference_update(added)


def _functions(model: Callable[..., Any]) -> Iterator[FunctionType]:
    """The functions of the model's classes, and those beside them in their files."""
    owners: set[Any] = {model}
    if isinstance(model, nn.Module):
        owners |= {cls for module in model.modules() for cls in type(module).__mro__}
    files = {sys.modules.get(getattr(owner, "__module__", "")) for owner in owners}
    for owner in owners | files:
        name = getattr(owner, "__module__", "") or getattr(owner, "__name__", "")
        if name.split(".")[0] in {"", "torch", "builtins"} or name.startswith("axiograd.homogeneity"):
            continue
        members = [owner] if isinstance(owner, FunctionType) else getattr(owner, "__dict__", {}).values()
        yield from (member for member in members if isinstance(member, FunctionType))


def _export(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, axes: tuple[int, ...]
) -> ExportedProgram:
    tensors = [v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, Tensor) and v.dim() > 0]
    batch = {v.shape[0] for v in tensors}
    if not axes or len(batch) != 1 or min(batch) <= 1:
        return export(module, args, kwargs, strict=False)
    collection = ShapesCollection()
    for tensor in tensors:
        collection[tensor] = {axis: Dim.AUTO for axis in axes if axis < tensor.dim()}
    try:
        shapes = collection.dynamic_shapes(module, args, kwargs)
        return export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
    except Exception:  # noqa: BLE001 - whatever the reason, an export with fewer free sizes decides
        return _export(module, args, kwargs, axes=axes[:-1])


@contextlib.contextmanager
def _exportable(module: nn.Module, kwargs: dict[str, Any]) -> Iterator[None]:
    """With a forward that torch.export takes: attributes that it sets are put back before the export looks at them.

    Its signature names what `**` takes, which the export counts twice otherwise, and frees no size.
    """
    original, patched = module.forward, "forward" in vars(module)
    signature = inspect.signature(original)
    if all(name.isidentifier() for name in kwargs):
        known = signature.parameters
        plain = [one for one in known.values() if one.kind is not one.VAR_KEYWORD]
        more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in kwargs if name not in known]
        signature = signature.replace(parameters=[*plain, *more])

    def forward(*args: Any, **given: Any) -> Any:
        with attributes_restored(module):
            return original(*args, **given)

    forward.__signature__ = signature  # type: ignore[attr-defined]  # where `inspect` looks
    vars(module)["forward"] = forward
    try:
        yield
    finally:
        del vars(module)["forward"]
        if patched:
            vars(module)["forward"] = original


def _require_real(exported: ExportedProgram) -> None:
    """Refuse programs with constants that are not numbers: torch.func transforms leave such traces."""
    for node in exported.graph.nodes:
        if getattr(node.target, "__module__", "").startswith("torch._functorch"):
            raise UntraceableError(f"the export does not follow torch.func transforms ({node.target.__name__}).")
    if any(isinstance(value, FakeTensor) for value in exported.constants.values()):
        raise UntraceableError("the export mistook a value that it computed for a constant.")


def _without_rule(graph: fx.Graph) -> set[str]:
    """Operators whose result is used but that no rule knows; perhaps their parts are known."""
    names = {op_name(node) for node in graph.nodes if node.op == "call_function" and node.users}
    return {name for name in names if name and lookup(name) is None}


def _parts_of(names: set[str]) -> dict[Any, Callable[..., Any]]:
    """How torch takes operators apart: building the table takes longer than most proofs, and ATen's does not change."""
    whole = _decompositions() if all(name.startswith("aten::") for name in names) else dict(default_decompositions())
    return {op: how for op, how in whole.items() if getattr(schema_of(op), "name", "") in names}


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    return dict(default_decompositions())


def reads_overwritten(graph: fx.Graph) -> bool:
    """Whether memory is written in place and then read under a name that was given before.

    >>> class Model(nn.Module):
    ...     def forward(self, x):
    ...         y = 2 * x
    ...         view = y.view(-1)
    ...         y.relu_()
    ...         return view
    >>> reads_overwritten(export(Model(), (torch.ones(2),)).graph)
    True
    """
    memory = Memory(graph)
    names: list[fx.Node] = []
    overwritten: set[fx.Node] = set()
    for node in with_bodies(graph):
        if not overwritten.isdisjoint(node.all_input_nodes):
            return True
        changed = memory.of(*written(node))
        overwritten.update(name for name in names if changed and not changed.isdisjoint(memory.of(name)))
        names.append(node)
    return False


def _functionalised(exported: ExportedProgram, unknown: set[str]) -> ExportedProgram:
    """The program without in-place operators; what no rule knows, and what may hand back its argument, in its parts."""
    remove_idle_dropout(exported.graph)
    opened = {op_name(node) for node in with_bodies(exported.graph) if undeclared_aliases(node)}
    parts = _parts_of(unknown | opened)
    opaque = sorted(opened - {schema_of(operator).name for operator in parts})
    if opaque:
        raise UntraceableError(f"a tensor that {', '.join(opaque)} may share is changed in place.")
    functional: ExportedProgram = exported.run_decompositions(parts)
    return functional


def remove_idle_dropout(graph: fx.Graph) -> None:
    """Dropout in eval mode is its argument; functionalisation takes it for a copy: in-place changes get lost."""
    for node in list(graph.nodes):
        if is_idle_dropout(node):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


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
            constants[spec.arg.name] = (name, exported.state_dict.get(name, exported.constants.get(name)))
    inputs = dict(zip(names, _leaf_order(exported, arguments), strict=True))
    outputs = tuple(
        spec.arg if isinstance(spec.arg, ConstantArgument) else spec.arg.name
        for spec in signature.output_specs
        if spec.kind == OutputKind.USER_OUTPUT
    )
    sizes, precision = sizes_of(exported, inputs, arguments), _precision(exported.graph)
    return Program(exported.graph_module, original, constants, objects, inputs, outputs, sizes, precision)


def _leaf_order(exported: ExportedProgram, arguments: Leaves) -> list[int]:
    """Index into `arguments.leaves` of each user input; the export may reorder keyword arguments."""
    args, kwargs = arguments.rebuild(range(len(arguments.leaves)))
    spec = exported.call_spec.in_spec
    keys = list(kwargs)
    if spec is not None and kwargs:
        keys = list(spec.child(1).context) if hasattr(spec, "child") else list(spec.children_specs[1].context)
    return pytree.tree_leaves((args, {key: kwargs[key] for key in keys}))


def _precision(graph: fx.Graph) -> torch.dtype:
    formats: set[torch.dtype] = {
        value.dtype.to_real()
        for node in graph.nodes
        for value in pytree.tree_leaves(node.meta.get("val"))
        if scalable(value)
    }
    return max(formats or {torch.float32}, key=lambda number_format: torch.finfo(number_format).eps)
