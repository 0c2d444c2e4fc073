"""Reading a traced graph: what a node calls and with what, the memory it uses, and the user's line it comes from."""

import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in [^\n]*(?:\n\s+(?P<code>[^\n]+))?')
_TORCH, _HERE = str(Path(torch.__file__).parent), Path(__file__).parent


def is_operator(target: Any) -> TypeGuard[Any]:
    """An operator with a schema, e.g. `aten.add.Tensor`."""
    return isinstance(target, torch._ops.OpOverload)  # noqa: SLF001


def is_higher_order(target: Any) -> bool:
    """An operator that takes programs: cond, map, a block under no_grad."""
    return isinstance(target, torch._ops.HigherOrderOperator)  # noqa: SLF001


def schema_of(target: Any) -> Any:
    """The schema of an operator; None for what is not one of torch's."""
    return getattr(target, "_schema", None)


def op_name(node: Any) -> str:
    """As "aten::add"; empty where the node calls no operator of torch's."""
    schema = schema_of(getattr(node, "target", None))
    return "" if schema is None else str(schema.name)


def title(target: Any) -> str:
    """As "aten.add", or the name of what is called."""
    schema = schema_of(target)
    return str(getattr(target, "__name__", target)) if schema is None else str(schema.name).replace("::", ".")


def arguments(node: fx.Node) -> Iterator[tuple[Any, Any]]:
    """Each argument that is given, with what the schema says of it."""
    known = schema_of(node.target).arguments
    yield from zip(known, node.args, strict=False)
    for one in known[len(node.args) :]:
        if one.name in node.kwargs:
            yield one, node.kwargs[one.name]


def argument(node: fx.Node, name: str, default: Any = None) -> Any:
    """An argument by its name in the operator's schema."""
    if schema_of(node.target) is None:
        return default
    given = next((value for one, value in arguments(node) if one.name == name), None)
    return default if given is None else given


def nodes_in(item: Any) -> list[fx.Node]:
    """The nodes in an argument, however deep."""
    return [leaf for leaf in pytree.tree_leaves(item) if isinstance(leaf, fx.Node)]


def placeholders(graph: fx.Graph) -> list[fx.Node]:
    """The inputs of a graph, in order."""
    return [node for node in graph.nodes if node.op == "placeholder"]


def ancestors(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """The nodes, and all that they are computed from."""
    seen: set[fx.Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += node.all_input_nodes
    return seen


def attribute(owner: Any, path: str) -> Any:
    """What stands at a dotted path below a module; None where nothing does."""
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner


def bodies(node: fx.Node) -> list[fx.GraphModule]:
    """The programs inside a higher-order operator."""
    if node.op != "call_function" or op_name(node) or node.graph.owning_module is None:
        return []
    held = (attribute(node.graph.owning_module, str(n.target)) for n in node.all_input_nodes if n.op == "get_attr")
    return [body for body in held if isinstance(body, fx.GraphModule)]


def shape_of(node: Any) -> tuple[Any, ...] | None:
    """Sizes of a node that is a tensor, some of them symbols; None for anything else."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return tuple(value.shape) if isinstance(value, Tensor) else None


def is_real(value: object) -> bool:
    """A number, or a tensor of numbers, that autograd can follow."""
    if isinstance(value, Tensor):
        return value.is_floating_point() or value.is_complex()
    return isinstance(value, float | torch.SymFloat)


def is_random(node: fx.Node) -> bool:
    """Whether the node draws from a generator."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def is_training(node: fx.Node) -> bool:
    """A batch norm that reads the batch's own statistics, and writes its running ones."""
    if "_norm" not in op_name(node):
        return False
    return any(argument(node, name) is True for name in ("training", "use_input_stats"))


def written(node: fx.Node) -> list[fx.Node]:
    """The arguments that an operator writes into; training a batch norm does so without declaring it."""
    if not is_operator(node.target):
        return []
    if is_training(node):
        return nodes_in([argument(node, "running_mean"), argument(node, "running_var")])
    declared = (v for a, v in arguments(node) if a.alias_info is not None and a.alias_info.is_write)
    return nodes_in(list(declared))


#: Composite operators whose result is always a new tensor.
_FRESH = """
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear matmul batch_norm layer_norm
    group_norm instance_norm rms_norm softmax log_softmax scaled_dot_product_attention max_pool1d max_pool2d max_pool3d
    avg_pool1d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d upsample_bilinear2d upsample_nearest2d silu
    relu6 selu celu native_batch_norm lstm gru rnn_relu rnn_tanh cosine_similarity pairwise_distance
"""
_DROPOUT = {f"aten::{name}" for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")}
_FRESH_NAMES = {f"aten::{name}" for name in _FRESH.split()}


def is_idle_dropout(node: fx.Node) -> bool:
    """Dropout in eval mode, which is its argument."""
    return op_name(node).rstrip("_") in _DROPOUT and node.args[2] is False


def undeclared_aliases(node: fx.Node) -> list[fx.Node]:
    """Arguments that a composite operator (reshape, type_as) may hand back without declaring it."""
    schema = schema_of(node.target)
    if op_name(node) in _DROPOUT:
        return node.all_input_nodes[:1] if is_idle_dropout(node) else []
    composite = is_operator(node.target) and node.target.has_kernel_for_dispatch_key(
        torch._C.DispatchKey.CompositeImplicitAutograd  # noqa: SLF001
    )
    if not composite or schema.name in _FRESH_NAMES or any(r.alias_info is not None for r in schema.returns):
        return []
    # A result of another dtype is a new tensor; operators that read bits as another dtype declare it.
    return [n for n in node.all_input_nodes if _dtype(n) in {None, _dtype(node)} or _dtype(node) is None]


def _dtype(node: fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, Tensor) else None


def with_bodies(graph: fx.Graph) -> Iterator[fx.Node]:
    """All nodes in the order in which they run, those inside a higher-order operator before itself."""
    for node in graph.nodes:
        for body in bodies(node):
            yield from with_bodies(body.graph)
        yield node


class Memory:
    """Which nodes share memory: those whose traced values have one storage, and what may be handed back."""

    def __init__(self, graph: fx.Graph) -> None:
        self._names: dict[int, int] = {}
        self._held: dict[fx.Node, list[int]] = {}
        for node in with_bodies(graph):
            self._held[node] = [_storage(v) for v in pytree.tree_leaves(node.meta.get("val")) if isinstance(v, Tensor)]
            for own in self._held[node]:
                for shared in (name for source in undeclared_aliases(node) for name in self._held[source]):
                    self._names[self._name(shared)] = self._name(own)

    def of(self, *nodes: fx.Node) -> set[int]:
        """A name for each piece of memory that the nodes hold."""
        return {self._name(name) for node in nodes for name in self._held[node]}

    def _name(self, name: int) -> int:
        while name in self._names and self._names[name] != name:
            name = self._names[name]
        return name


def _storage(value: Tensor) -> int:
    try:
        return id(value.untyped_storage())
    except NotImplementedError:  # sparse
        return id(value)


@dataclass(frozen=True)
class Location:
    """Where a node comes from: the module's path, "file.py:12", and that line."""

    module: str = ""
    source: str = ""
    code: str = ""


def locate(node: fx.Node) -> Location:
    """Innermost module, and the innermost line that is not torch's own."""
    stack = node.meta.get("nn_module_stack") or {}
    module = ""
    for path, _ in stack.values():
        module = path or module
    module = re.sub(r"@\d+$", "", module)
    file, line, code = "", 0, ""
    for match in _FRAME.finditer(node.meta.get("stack_trace") or ""):
        if not _is_library(match["file"]):
            file, line, code = match["file"], int(match["line"]), (match["code"] or "").strip()
    return Location(module, _source(file, line), code)


def locate_error(error: BaseException) -> Location:
    """The innermost line of the user's code on the way to an exception."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not _is_library(f.filename) and f.filename != "<string>"]
    if not own:
        return Location()
    return Location("", _source(own[-1].filename, own[-1].lineno or 0), (own[-1].line or "").strip())


def _is_library(file: str) -> bool:
    return file.startswith(_TORCH) or file.endswith("contextlib.py") or Path(file).parent == _HERE


def _source(file: str, line: int) -> str:
    if not file:
        return ""
    path = Path(file)
    with suppress(ValueError):
        path = path.relative_to(Path.cwd())
    return f"{path}:{line}"
