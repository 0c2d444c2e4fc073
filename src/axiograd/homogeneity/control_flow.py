"""Higher-order operators: bodies that are programs of their own."""

from typing import TYPE_CHECKING, Any

from torch import fx

from axiograd.homogeneity.domain import UNKNOWN, Value, of_degree
from axiograd.homogeneity.nodes import is_higher_order, placeholders
from axiograd.homogeneity.rules.call import Call, flatten, is_invariant

if TYPE_CHECKING:
    from axiograd.homogeneity.interpret import Interpreter

#: Operators that merely run a program.
WRAPPERS = {"wrap_with_set_grad_enabled", "wrap_with_autocast", "wrap", "tag_activation_checkpoint"}


def interpret_body(interpreter: "Interpreter", node: fx.Node, args: list[Any]) -> Any:
    """What a higher-order operator returns, or None if this is none."""
    if not is_higher_order(node.target):
        return None
    name = str(node.target)
    values = list(flatten(args))
    if name in WRAPPERS:
        place = next(i for i, a in enumerate(args) if isinstance(a, fx.GraphModule))
        return _run(interpreter, args[place], args[place + 1 :])
    if all(is_invariant(v) and v.offset is None for v in values):
        return _like(node, of_degree(0), values)
    if name == "cond":
        return _cond(interpreter, node, args)
    if name == "map_impl":
        # Every slice has the degree of the whole.
        return _run(interpreter, args[0], [*args[1], *args[2]])
    Call(node, name, {}, interpreter.report).report(
        f"The control flow of {name} is not followed by any rule.",
        "Unroll the loop, or move it out of the model.",
        kind="rule",
    )
    return _like(node, UNKNOWN, [])


def _cond(interpreter: "Interpreter", node: fx.Node, args: list[Any]) -> Any:
    condition, yes, no, operands = args
    call = Call(node, "cond", {}, interpreter.report)
    branches = [_run(interpreter, body, operands) for body in (yes, no)]
    results = []
    for a, b in zip(*branches, strict=True):
        if a.offset is not None or b.offset is not None:
            call.report(
                "The baseline has not been taken out of the input before the branches meet.",
                "Subtract the baseline from the input first: x − b must be what the branches see.",
                kind="constant",
            )
        joined = call.join(a, b, role="a choice between two branches")
        sound = call.sound and a.sound and b.sound and condition.sound
        exact = a.exact and b.exact and condition.exact
        results.append(joined.marked(sound=sound, exact=exact, moves=a.moves or b.moves))
    return tuple(results)


def _run(interpreter: "Interpreter", body: fx.GraphModule, operands: list[Any]) -> tuple[Any, ...]:
    from axiograd.homogeneity.interpret import Interpreter as Walk

    walk = Walk(body, interpreter.report)
    walk.environment.update(zip(placeholders(body.graph), operands, strict=True))
    walk.run(body.graph.nodes)
    interpreter.visits += walk.visits
    output = next(n for n in body.graph.nodes if n.op == "output")
    results = walk.read(output.args[0])
    return tuple(results) if isinstance(results, list) else (results,)


def _like(node: fx.Node, value: Value, values: list[Value]) -> tuple[Value, ...]:
    meta = node.meta.get("val")
    count = len(meta) if isinstance(meta, list | tuple) else 1
    sound = not value.unknown and all(v.sound for v in values)
    exact, moves = all(v.exact for v in values), any(v.moves for v in values)
    return (value.marked(sound=sound, exact=exact, moves=moves),) * count
