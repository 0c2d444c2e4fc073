"""The walk: one visit per operator, which yields the degree of its result and whether that is piecewise linear.

    walk = Walk(graph_module, findings)
    walk.environment.update(inputs)         # what is known about the placeholders
    walk.run(graph_module.graph.nodes)      # what is known about everything else

With a baseline b, the input is b + u with u of degree 1, and b is carried along until the program takes it out again:
an affine operator A maps b + u to A(b) plus the linear part of A on u.
"""

import operator
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from axiograd.homogeneity.certificate import Violation
from axiograd.homogeneity.degrees import UNKNOWN, KnownConstant, Value, of_degree
from axiograd.homogeneity.findings import Findings, violation_at
from axiograd.homogeneity.nodes import (
    argument,
    attribute,
    is_higher_order,
    is_operator,
    is_random,
    is_training,
    op_name,
    placeholders,
    schema_of,
    title,
)
from axiograd.homogeneity.rules import lookup
from axiograd.homogeneity.rules.call import Call, as_value, flatten
from axiograd.homogeneity.rules.derivatives import require_derivative
from axiograd.homogeneity.rules.registry import Rule
from axiograd.homogeneity.rules.table import SLOPES, Slope

#: What a node stands for: a value, or a tuple of them.
Known: TypeAlias = Any

DRAWS_FIXED = "random draws (dropout masks and the like) are held fixed"
_PYTHON = {
    operator.add: "aten::add",
    operator.sub: "aten::sub",
    operator.mul: "aten::mul",
    operator.truediv: "aten::div",
    operator.neg: "aten::neg",
    operator.pow: "aten::pow",
}
#: Types whose numbers scale, up to rounding.
_SCALING = {
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex32, torch.complex64, torch.complex128),
}
#: Their result is whatever the memory held.
UNINITIALISED = {f"aten::{name}" for name in ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided")}
#: Operators that merely run a program.
_WRAPPERS = {"wrap_with_set_grad_enabled", "wrap_with_autocast", "wrap", "tag_activation_checkpoint"}
_BASELINE_FIX = "Subtract the baseline from the input first: x − b must be what the network sees."


class Walk:
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
            owner = attribute(self.module, str(node.target))
            return owner if isinstance(owner, torch.nn.Module) else _constant(lambda: owner, (str(node.target),))
        args, kwargs = self.read(node.args), self.read(node.kwargs)
        if node.target is operator.getitem and isinstance(args[0], tuple):
            return args[0][args[1]]
        if is_training(node):
            # A batch norm in training writes its running statistics and does not read them.
            args[3:5] = [of_degree(0) if isinstance(a, Value) else a for a in args[3:5]]
        return self._call(node, args, kwargs)

    def _call(self, node: fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Known:
        values = list(flatten((args, kwargs)))
        if _draws(node):
            self.report.assume(DRAWS_FIXED)
        if any(v.unknown for v in values):
            unknown = UNKNOWN.after(values)
            bends = unknown.bends or ((node, "Nothing is known about its arguments."),)
            return _per_output(node, lambda _, __: replace(unknown, bends=bends))
        if op_name(node) in UNINITIALISED:
            # Like a constant that is not zero, until all of it is overwritten.
            return _constant(lambda: _garbage(node.meta["val"]), ("torch.empty",))
        if all(v.constant is not None for v in values) and not is_random(node):
            names = dict.fromkeys(name for v in values if v.constant is not None for name in v.constant.names)
            return _constant(lambda: _compute(node, args, kwargs), tuple(names))
        if is_higher_order(node.target):
            return self._bodies(node, args, values)
        if not is_operator(node.target):
            name = _PYTHON.get(node.target, title(node.target))  # type: ignore[arg-type]
            keys = ("self", "exponent") if name == "aten::pow" else ("self", "other")
            return self._operator(node, name, dict(zip(keys, args, strict=False)), values)
        return self._operator(node, op_name(node), _bind(node, args, kwargs), values)

    def _operator(self, node: fx.Node, name: str, arguments: dict[str, Any], values: list[Value]) -> Known:
        if any(v.offset is not None for v in values):
            shifted = self._with_offset(node, name, arguments, values)
            if shifted is not None:
                return shifted
            arguments = _without_offset(arguments)
            values = list(flatten([arguments]))
        call = Call(node, name, arguments, self.report, self.environment)
        if any(v.moves for v in values):
            self._ask(require_derivative, call)
        found = lookup(name)
        result: Any
        if all(v.is_invariant() for v in values):
            result = self._of_degree_zero(call, found)
        elif found is None:
            call.report(
                f"No rule for {call.title}, so nothing is known about its result.",
                f'Add one with @axiograd.homogeneity.rule("{name}"), or write the operator with known ones.',
                kind="rule",
            )
            result = UNKNOWN
        else:
            result = self._ask(found, call)
        return self._spread(call, result, values)

    def _ask(self, found: Callable[[Call], Any], call: Call) -> Any:
        """The result of a rule; one that fails on its arguments proves nothing."""
        try:
            return found(call)
        except (KeyError, TypeError, IndexError, AttributeError, ValueError, StopIteration) as error:
            call.report(
                f"The rule for {call.title} does not understand this call ({type(error).__name__}: {error}).",
                "Write the operator in another way, or add a rule that covers this call.",
                kind="rule",
            )
            return UNKNOWN

    def _of_degree_zero(self, call: Call, found: Rule | None) -> Any:
        """Anything computed from values of degree 0 is of degree 0; a rule may know that it is zero or free besides."""
        if found is None:
            return of_degree(0)
        quiet = Call(call.node, call.name, call.arguments, None, self.environment)
        sharper = self._ask(found, quiet)
        items = sharper if isinstance(sharper, tuple) else (sharper,)
        free = all(isinstance(v, Value) and v.degree is None and not v.unknown for v in items)
        return sharper if free and quiet.sound and quiet.exact else of_degree(0)

    def _spread(self, call: Call, result: Any, values: list[Value]) -> Known:
        """Give the result the shape of the node's outputs, and pass on what lies upstream."""
        bend = _bend(call, values)
        before = Value(degree=0.0, sound=call.sound, exact=call.exact).after(values)
        if bend is not None:
            before = replace(before, bends=((call.node, bend),))
        if _is_step(call):
            before = replace(before, moves=False, bends=())

        def finish(place: int, meta: Any) -> Value:
            one = result[place] if isinstance(result, tuple) else result
            value = of_degree(one) if isinstance(one, int | float) else as_value(one)
            sound = not value.unknown
            if isinstance(meta, Tensor) and meta.dtype not in _SCALING and not value.is_invariant() and sound:
                # "Not zero" is of degree 0.
                sound = meta.dtype == torch.bool
                if not sound:
                    self._report_rounding(call, value, meta.dtype)
                value = of_degree(0)
            fixed = isinstance(meta, Tensor) and not (meta.is_floating_point() or meta.is_complex())
            return replace(
                value.bare(),
                sound=sound and before.sound,
                exact=before.exact,
                moves=before.moves and not fixed,
                bends=() if fixed else before.bends,
            )

        return _per_output(call.node, finish)

    def _report_rounding(self, call: Call, value: Value, dtype: torch.dtype) -> None:
        kind = f"{str(dtype).removeprefix('torch.')}, whose range is too small to scale in"
        if not dtype.is_floating_point:
            kind = "integers, which jump as the input scales"
        call.report(
            f"A value of degree {value.degree or 0:g} is rounded to {kind}.",
            "Keep it in floating point of 16 bits or more, or round values of degree 0 only.",
            kind="rounding",
        )

    # Baselines

    def _with_offset(self, node: fx.Node, name: str, arguments: dict[str, Any], values: list[Value]) -> Known:
        """The result of an affine operator on b + u, or None (reported) if b is lost."""
        moving = [v for v in values if v.constant is None]
        slope = SLOPES.get(_functional(name))
        affine = slope in {Slope.LINEAR, Slope.PRODUCT} or (
            slope is Slope.LINEAR_IN_FIRST and next(iter(arguments.values())) is moving[0]
        )
        once = len(moving) == 1 and sum(v is moving[0] for v in values) == 1
        if affine and once and not _draws(node) and not _is_curved_by_option(name, arguments):
            found = _compute(node, self.read(node.args), self.read(node.kwargs))
            parts = found if isinstance(found, list | tuple) else [found]
            if all(isinstance(part, Tensor) and part.dtype in _SCALING for part in parts):
                return _per_output(node, lambda place, _: _shifted(moving[0], parts[place]))
        self.report.violation(
            node,
            op=name.replace("::", "."),
            reason="The baseline has not been taken out of the input before this operator.",
            fix=_BASELINE_FIX,
            kind="constant",
        )
        return None

    # Operators that run programs of their own

    def _bodies(self, node: fx.Node, args: list[Any], values: list[Value]) -> Known:
        name = str(node.target)
        if name in _WRAPPERS:
            place = next(i for i, a in enumerate(args) if isinstance(a, fx.GraphModule))
            return self._body(args[place], args[place + 1 :])
        call = Call(node, name, {}, self.report, self.environment)
        bent = replace(of_degree(0), bends=((node, "Control flow is neither linear nor a gate."),)).after(values)
        if all(v.is_invariant() and v.offset is None for v in values):
            return _per_output(node, lambda _, __: bent)
        if name == "cond":
            return self._cond(call, args, bent)
        call.report(
            f"The control flow of {name} is not followed by any rule.",
            "Unroll the loop, or move it out of the model.",
            kind="rule",
        )
        return _per_output(node, lambda _, __: UNKNOWN.after([bent]))

    def _cond(self, call: Call, args: list[Any], bent: Value) -> tuple[Value, ...]:
        _, yes, no, operands = args
        results = []
        for a, b in zip(self._body(yes, operands), self._body(no, operands), strict=True):
            if a.offset is not None or b.offset is not None:
                call.report(
                    "The baseline has not been taken out of the input before the branches meet.",
                    _BASELINE_FIX,
                    kind="constant",
                )
            joined = call.join(a, b)
            results.append(replace(joined, sound=call.sound).after([a, b, bent]))
        return tuple(results)

    def _body(self, body: fx.GraphModule, operands: list[Any]) -> tuple[Any, ...]:
        walk = Walk(body, self.report)
        walk.environment.update(zip(placeholders(body.graph), operands, strict=True))
        walk.run(body.graph.nodes)
        self.visits += walk.visits
        results = walk.read(next(n for n in body.graph.nodes if n.op == "output").args[0])
        return tuple(results) if isinstance(results, list) else (results,)


def not_piecewise_linear(outputs: Iterable[Value]) -> tuple[Violation, ...]:
    """What keeps these values from being affine in the input while every gate is held."""
    found = dict.fromkeys(bend for value in outputs for bend in value.bends)
    fix = "The held-gate step does not apply; the double backward pass does. ReLU, max pooling and the like are gates."
    listed = (
        violation_at(node, op=title(node.target), reason=reason, fix=fix, kind="curved") for node, reason in found
    )
    return tuple(dict.fromkeys(listed))


# Piecewise linear: affine in the input for as long as every gate stays as it is


def _bend(call: Call, values: list[Value]) -> str | None:
    """Why the result is not affine though the arguments are; None if it is, or if they are not."""
    if not any(v.moves for v in values) or any(v.bends for v in values) or _is_step(call):
        return None
    slope = SLOPES.get(_functional(call.name), Slope.CURVED)
    if _is_complex_gate(call):
        return "Length and direction of a complex number are not affine in its parts."
    if slope is Slope.CURVED:
        return "It is neither a linear operator nor a gate."
    if _is_curved_by_option(call.name, call.arguments):
        return "A quotient is rounded, the input normalised by its own statistics, or bits read as another type."
    if slope is Slope.PRODUCT:
        added = {"bias", "self"} if "batch1" in call.arguments or call.name.startswith("aten::add") else {"bias"}
        factors = flatten(given for name, given in call.arguments.items() if name not in added)
        if sum(v.moves for v in factors) > 1:
            return "Two factors that both depend on the input are multiplied."
    if slope in {Slope.LINEAR_IN_FIRST, Slope.GATE_IN_FIRST}:
        _, *others = call.arguments.values()
        if any(v.moves for v in flatten(others)):
            return "An argument other than the first depends on the input."
    return None


def _is_curved_by_option(name: str, arguments: dict[str, Any]) -> bool:
    """An option makes a linear operator nonlinear."""
    bits = name in {"aten::view", "aten::view_copy"} and arguments.get("dtype") is not None
    return bits or arguments.get("rounding_mode") is not None or arguments.get("training") is True


def _is_step(call: Call) -> bool:
    return SLOPES.get(_functional(call.name)) is Slope.STEP and not _is_complex_gate(call)


def _is_complex_gate(call: Call) -> bool:
    """|z| and z/|z|, which are gates for real numbers only."""
    if _functional(call.name) not in {"aten::abs", "aten::absolute", "aten::sgn"}:
        return False
    value = call.node.args[0].meta.get("val")  # type: ignore[union-attr]
    return isinstance(value, Tensor) and value.is_complex()


# Nodes, their arguments and their numbers


def _functional(name: str) -> str:
    """The name of an in-place operator's functional twin."""
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def _draws(node: fx.Node) -> bool:
    """Whether the node draws random numbers that matter: dropout in eval mode does not."""
    if not is_random(node):
        return False
    off = any(argument(node, name) is False for name in ("train", "training"))
    return not off and argument(node, "dropout_p", 1.0) != 0


def _constant(compute: Callable[[], Any], names: tuple[str, ...]) -> Value:
    return Value(degree=0.0, constant=KnownConstant(compute, names))


def _garbage(like: Tensor) -> Tensor | None:
    """Numbers that stand for memory which was not written yet."""
    sizes: list[Any] = list(like.shape)
    if not like.is_floating_point() or not all(isinstance(size, int) for size in sizes):
        return None
    return torch.full(sizes, torch.nan, dtype=like.dtype)


def _per_output(node: fx.Node, make: Callable[[int, Any], Value]) -> Known:
    """One value for a node with one result, a tuple for several."""
    meta = node.meta.get("val")
    if isinstance(meta, list | tuple):
        return tuple(make(place, one) for place, one in enumerate(meta))
    return make(0, meta)


def _compute(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """The numbers of a node whose arguments are known, or are baselines; None where they cannot be had."""
    target: Callable[..., Any] = node.target  # type: ignore[assignment]
    schema = schema_of(target)
    given = pytree.tree_map_only(Value, lambda v: v.offset if v.constant is None else v.constant.value, [args, kwargs])
    if schema is not None and schema.is_mutable:
        # The numbers are the user's own tensors: an in-place operator works on a copy.
        given = pytree.tree_map_only(Tensor, Tensor.clone, given)
    try:
        with torch.no_grad():
            return target(*given[0], **given[1])
    except Exception:  # noqa: BLE001 - a constant that cannot be computed is not known to be zero
        return None


def _bind(node: fx.Node, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, in the order of the schema, so that "the first tensor" means what it says."""
    names, defaults = _parameters(node.target)
    given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
    return {name: given[name] for name in names if name in given}


@cache
def _parameters(target: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    known = schema_of(target).arguments
    return tuple(a.name for a in known), {a.name: a.default_value for a in known if a.has_default_value()}


def _shifted(value: Value, offset: Tensor) -> Value:
    return replace(value, offset=None if bool((offset == 0).all()) else offset)


def _without_offset(item: Any) -> Any:
    return pytree.tree_map_only(Value, lambda v: v if v.offset is None else replace(v, offset=None, sound=False), item)
