"""The walk: one visit per operator, one abstract value per result."""

import operator
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from axiograd.homogeneity.baseline import follow_offset
from axiograd.homogeneity.control_flow import interpret_body
from axiograd.homogeneity.domain import UNKNOWN, KnownConstant, Value, of_degree
from axiograd.homogeneity.findings import AssumptionsOnly, Findings, Sink
from axiograd.homogeneity.nodes import attribute, is_operator, is_random, is_training, op_name, schema_of, title
from axiograd.homogeneity.rules import lookup
from axiograd.homogeneity.rules.backward import require_derivative
from axiograd.homogeneity.rules.blank import UNINITIALISED, follow_blank, uninitialised
from axiograd.homogeneity.rules.call import Call, as_value, flatten, is_invariant

#: What a node stands for: a value, or a tuple of them.
Known: TypeAlias = Any

_PYTHON = {
    operator.add: "aten::add",
    operator.sub: "aten::sub",
    operator.mul: "aten::mul",
    operator.truediv: "aten::div",
    operator.neg: "aten::neg",
    operator.pow: "aten::pow",
}
#: Types whose numbers scale, up to rounding.
SCALING = {
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex32, torch.complex64, torch.complex128),
}


class Interpreter:
    """Walks a graph once; the environment holds what is known about each node."""

    def __init__(self, module: torch.nn.Module, report: Findings) -> None:
        self.module = module
        self.report = report
        self.environment: dict[fx.Node, Known] = {}
        self.visits = 0

    def run(self, nodes: Iterable[fx.Node]) -> None:
        for node in nodes:
            if node not in self.environment and node.op in {"call_function", "get_attr"}:
                self.visits += 1
                self.environment[node] = self._visit(node)

    def read(self, item: Any) -> Any:
        """An argument with nodes replaced by what is known about them."""
        if isinstance(item, fx.Node):
            return self.environment[item]
        if isinstance(item, list | tuple):
            return [self.read(i) for i in item]
        if isinstance(item, dict):
            return {k: self.read(v) for k, v in item.items()}
        return item

    def _visit(self, node: fx.Node) -> Known:
        if node.op == "get_attr":
            return self._attribute(node)
        args, kwargs = self.read(node.args), self.read(node.kwargs)
        if node.target is operator.getitem and isinstance(args[0], tuple):
            return args[0][args[1]]
        if is_training(node):
            # A batch norm in training writes its running statistics and does not read them.
            args[3:5] = [of_degree(0) if isinstance(a, Value) else a for a in args[3:5]]
        values = list(flatten((args, kwargs)))
        if any(v.unknown for v in values):
            return self._spread(node, UNKNOWN, values, sound=False)
        if any(v.blank is not None for v in values):
            followed = follow_blank(node, args)
            if followed is not None:
                return self._spread(node, followed, values)
            args, kwargs = _filled(args), _filled(kwargs)
            values = list(flatten((args, kwargs)))
        if all(v.is_constant for v in values) and not self._is_random(node):
            names = dict.fromkeys(name for v in values if v.constant is not None for name in v.constant.names)
            return Value(degree=0.0, constant=KnownConstant(lambda: _compute(node, args, kwargs), tuple(names)))
        if not is_operator(node.target):
            return self._python(node, args, values)
        if op_name(node) in UNINITIALISED:
            return uninitialised(node)
        return self._operator(node, op_name(node), _bind(node, args, kwargs), values)

    def _attribute(self, node: fx.Node) -> Known:
        owner = attribute(self.module, str(node.target))
        if isinstance(owner, torch.nn.Module):
            return owner
        return Value(degree=0.0, constant=KnownConstant(lambda: owner, (str(node.target),)))

    def _python(self, node: fx.Node, args: list[Any], values: list[Value]) -> Known:
        """Python operators on sizes and numbers, and higher-order operators."""
        body = interpret_body(self, node, args)
        if body is not None:
            return body
        name = _PYTHON.get(node.target) if callable(node.target) else None
        if name is not None and all(v.offset is None for v in values):
            keys = ("self", "exponent") if name == "aten::pow" else ("self", "other")
            return self._operator(node, name, dict(zip(keys, args, strict=False)), values)
        return self._operator(node, title(node.target), {}, values)

    def _operator(self, node: fx.Node, name: str, arguments: dict[str, Any], values: list[Value]) -> Known:
        if any(v.offset is not None for v in values):
            followed = follow_offset(self, node, name, values)
            if followed is not None:
                return self._spread(node, followed, values)
            arguments = _without_offset(arguments)
        call = Call(node, name, arguments, self.report, self.environment)
        if any(v.moves for v in values):
            self._ask(require_derivative, call)
        if all(is_invariant(v) for v in values):
            return self._invariant(node, name, arguments, values, sound=call.sound)
        found = lookup(name)
        if found is None:
            call.report(
                f"No rule for {call.title}, so nothing is known about its result.",
                f'Add one with @axiograd.homogeneity.rule("{name}"), or write the operator with known ones.',
                kind="rule",
            )
            return self._spread(node, UNKNOWN, values, sound=False)
        return self._spread(node, self._ask(found, call), values, sound=call.sound, exact=call.exact)

    def _ask(self, found: Callable[[Call], Any], call: Call) -> Any:
        """What a rule says; one that stumbles over its arguments proves nothing."""
        try:
            return found(call)
        except (KeyError, TypeError, IndexError, AttributeError, ValueError, StopIteration) as error:
            call.report(
                f"The rule for {call.title} does not understand this call ({type(error).__name__}: {error}).",
                "Write the operator in another way, or add a rule that covers this call.",
                kind="rule",
            )
            return UNKNOWN

    def _invariant(
        self, node: fx.Node, name: str, arguments: dict[str, Any], values: list[Value], *, sound: bool
    ) -> Known:
        """Anything computed from values of degree 0 is of degree 0; a rule may know that it is zero or free besides."""
        result: Any = of_degree(0)
        found = lookup(name)
        if found is not None:
            call = Call(node, name, arguments, Sink())
            sharper = self._ask(found, call)
            items = sharper if isinstance(sharper, tuple) else (sharper,)
            if (
                call.sound
                and call.exact
                and all(isinstance(v, Value) and v.degree is None and not v.unknown for v in items)
            ):
                result = sharper
            elif "dropout" in name or self._is_random(node):
                self._ask(found, Call(node, name, arguments, AssumptionsOnly(self.report)))
        return self._spread(node, result, values, sound=sound)

    def _spread(
        self, node: fx.Node, result: Any, values: list[Value], *, sound: bool = True, exact: bool = True
    ) -> Known:
        """Give the result the shape of the node's outputs, and pass on what lies upstream."""
        marks = {
            "sound": sound and all(v.sound for v in values),
            "exact": exact and all(v.exact for v in values),
            "moves": any(v.moves for v in values),
        }
        meta = node.meta.get("val")
        if isinstance(meta, list | tuple):
            items = result if isinstance(result, tuple) else (result,) * len(meta)
            return tuple(self._finish(node, v, m, **marks) for v, m in zip(items, meta, strict=True))
        if isinstance(result, tuple):
            result = result[0]
        return self._finish(node, result, meta, **marks)

    def _finish(self, node: fx.Node, result: Any, meta: Any, *, sound: bool, exact: bool, moves: bool) -> Value:
        value = as_value(result) if not isinstance(result, int | float) else of_degree(result)
        if value.constant is not None:
            # What a rule hands on is no longer that very constant.
            value = Value(degree=value.degree, zero=value.zero, unknown=value.unknown)
        sound = sound and not value.unknown
        if isinstance(meta, Tensor):
            moves = moves and (meta.is_floating_point() or meta.is_complex())
            if not is_invariant(value) and not value.unknown and meta.dtype not in SCALING:
                # "Not zero" is of degree 0.
                sound = self._rounded(node, value, meta.dtype) and sound
                value = of_degree(0)
        return value.marked(sound=sound, exact=exact, moves=moves)

    def _rounded(self, node: fx.Node, value: Value, dtype: torch.dtype) -> bool:
        """Whether a value of some degree may become this type, whose numbers do not scale."""
        if dtype == torch.bool:
            return True
        kind = f"{str(dtype).removeprefix('torch.')}, whose range is too small to scale in"
        if not dtype.is_floating_point:
            kind = "integers, which jump as the input scales"
        self.report.violation(
            node,
            op=title(node.target),
            reason=f"A value of degree {value.degree or 0:g} is rounded to {kind}.",
            fix="Keep it in floating point of 16 bits or more, or round values of degree 0 only.",
            kind="rounding",
        )
        return False

    def _is_random(self, node: fx.Node) -> bool:
        return is_random(node) or op_name(node) in UNINITIALISED


def _compute(node: fx.Node, args: Any, kwargs: Any) -> Any:
    target: Callable[..., Any] = node.target  # type: ignore[assignment]
    schema = schema_of(target)
    given = materialise([args, kwargs])
    if schema is not None and schema.is_mutable:
        # The numbers are the user's own tensors: an in-place operator works on a copy.
        given = pytree.tree_map_only(Tensor, Tensor.clone, given)
    try:
        return target(*given[0], **given[1])
    except Exception:  # noqa: BLE001 - a constant that cannot be computed is not known to be zero
        return None


def materialise(item: Any) -> Any:
    """Call with constants replaced by their numbers."""
    if isinstance(item, Value):
        return item.constant.value() if item.constant is not None else item.offset
    if isinstance(item, list | tuple):
        return [materialise(i) for i in item]
    if isinstance(item, dict):
        return {k: materialise(v) for k, v in item.items()}
    return item


def _bind(node: fx.Node, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    known = schema_of(node.target).arguments
    bound = {a.name: a.default_value for a in known if a.has_default_value()}
    names = [a.name for a in known]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    # In the order of the schema, so that "the first tensor" means what it says.
    return {name: given.get(name, bound.get(name)) for name in names if name in given or name in bound}


def _without_offset(item: Any) -> Any:
    def without(value: Value) -> Value:
        if value.offset is None:
            return value
        return of_degree(value.degree or 0).marked(sound=False, exact=value.exact, moves=value.moves)

    return pytree.tree_map_only(Value, without, item)


def _filled(item: Any) -> Any:
    """Memory that is read before it was written holds numbers that do not scale."""
    return pytree.tree_map_only(Value, lambda v: v if v.blank is None else of_degree(0), item)


def result_degree(
    operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, degree_of: Callable[[Tensor], float]
) -> float:
    """The degree that an operator's rule gives to its result, from those of its arguments."""
    graph, walk = fx.Graph(), Interpreter(torch.nn.Module(), Findings())

    def given(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        node = graph.placeholder(f"x{len(walk.environment)}")
        node.meta["val"] = leaf
        walk.environment[node] = Value(degree=degree_of(leaf), moves=True)
        return node

    node = graph.call_function(operator, pytree.tree_map(given, args), pytree.tree_map(given, kwargs))
    node.meta["val"] = result
    walk.run([node])
    values = pytree.tree_leaves(walk.environment[node])
    return max((v.degree or 0.0 for v in values if isinstance(v, Value)), key=abs, default=0.0)
