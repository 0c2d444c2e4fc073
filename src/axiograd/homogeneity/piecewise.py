"""Is a program piecewise linear: affine in its input for as long as every gate stays as it is?

A value is fixed (it does not move until a gate switches), affine, or curved. A ReLU network is affine in x with or
without biases; a product of two values that both depend on x is curved.
"""

import itertools
from collections.abc import Iterable
from typing import Any

from torch import Tensor, fx
from torch.utils import _pytree as pytree

from axiograd.homogeneity.certificate import Violation
from axiograd.homogeneity.control_flow import WRAPPERS
from axiograd.homogeneity.nodes import (
    ancestors,
    argument,
    bodies,
    is_higher_order,
    locate,
    nodes_in,
    op_name,
    placeholders,
    schema_of,
)
from axiograd.homogeneity.program import Program
from axiograd.homogeneity.rules.piecewise import GATES, IN, LINEAR, LISTED, OF_REALS, PRODUCTS, STEPS

_FIXED, _AFFINE, _CURVED = range(3)
_FIX = "The held-gate step does not apply; the double backward pass does. ReLU, max pooling and the like are gates."


def curved_operators(program: Program, moving: set[str]) -> tuple[Violation, ...]:
    """What keeps the outputs from being affine in the inputs named; nothing if they are."""
    walk = _PiecewiseWalk()
    nodes = list(program.graph_module.graph.nodes)
    inputs = placeholders(program.graph_module.graph)
    walk.state.update({node: _AFFINE if node.name in moving else _FIXED for node in inputs})
    outputs = [node for node in nodes if node.name in {o for o in program.outputs if isinstance(o, str)}]
    needed = ancestors(outputs)
    walk.run(node for node in nodes if node in needed)
    return tuple(dict.fromkeys(spoilt for node in outputs for spoilt in walk.spoilt.get(node, ())))


class _PiecewiseWalk:
    def __init__(self) -> None:
        self.state: dict[fx.Node, int] = {}
        #: Of curved nodes: the operators that made them so.
        self.spoilt: dict[fx.Node, tuple[Violation, ...]] = {}

    def run(self, nodes: Iterable[fx.Node]) -> None:
        for node in nodes:
            if node not in self.state and node.op != "output":
                self.state[node] = self._visit(node)

    def of(self, item: Any) -> int:
        """The most that any node in an argument moves."""
        return max((self.state[n] for n in nodes_in(item)), default=_FIXED)

    def _visit(self, node: fx.Node) -> int:
        moves = self.of((node.args, node.kwargs))
        name = _name(node)
        turns = name in OF_REALS and _is_complex(node.args[0])
        if moves == _FIXED or (name in STEPS and not turns) or not _is_floating(node):
            return _FIXED
        if moves == _CURVED:
            sources = (self.spoilt.get(source, ()) for source in node.all_input_nodes)
            self.spoilt[node] = tuple(dict.fromkeys(itertools.chain(*sources)))
            return _CURVED
        if getattr(node.target, "__name__", "") == "getitem":
            return moves
        inside = self._body(node)
        if inside is not None:
            return inside
        reason = self._against(node, name)
        if reason is None:
            return _AFFINE
        place, op = locate(node), name.replace("::", ".") or str(node.target)
        self.spoilt[node] = (Violation(place.module, op, place.source, reason, _FIX, "curved", place.code),)
        return _CURVED

    def _against(self, node: fx.Node, name: str) -> str | None:
        """Why the result is not affine though the arguments are; None if it is."""
        if name in OF_REALS and _is_complex(node.args[0]):
            return "Length and direction of a complex number are not affine in its parts."
        if name in LINEAR or name in GATES:
            if argument(node, "dtype") is not None and name in {"aten::view", "aten::view_copy"}:
                return "The bits of a number are read as another type."
            return None
        if name in PRODUCTS:
            moving = sum(any(self.of(argument(node, a)) for a in group) for group in PRODUCTS[name])
            return "Two factors that both depend on the input are multiplied." if moving > 1 else None
        if name in LISTED:
            moving = sum(self.of(factor) for factor in nodes_in((node.args, node.kwargs)))
            return "Two factors that both depend on the input are multiplied." if moving > 1 else None
        if name in IN:
            if argument(node, "training", default=False) is True:
                return "The input is normalised by statistics of its own."
            if argument(node, "rounding_mode") is not None:
                return "A quotient is rounded."
            others = {a.name for a in schema_of(node.target).arguments} - set(IN[name])
            moves = any(self.of(argument(node, other)) for other in others)
            return "It is steered by a value that depends on the input." if moves else None
        return "It is neither a linear operator nor a gate."

    def _body(self, node: fx.Node) -> int | None:
        """Through an operator that merely runs a program of its own."""
        if not is_higher_order(node.target) or str(node.target) not in WRAPPERS - {"wrap_with_set_grad_enabled"}:
            return None
        (body,) = bodies(node)
        place = next(i for i, a in enumerate(node.args) if isinstance(a, fx.Node) and a.op == "get_attr")
        inner = placeholders(body.graph)
        self.state.update({n: self.of(a) for n, a in zip(inner, node.args[place + 1 :], strict=True)})
        self.run(body.graph.nodes)
        results = next(n for n in body.graph.nodes if n.op == "output").all_input_nodes
        self.spoilt[node] = tuple(dict.fromkeys(v for n in results for v in self.spoilt.get(n, ())))
        return self.of(results)


def _name(node: fx.Node) -> str:
    name = op_name(node)
    if not name:
        python = getattr(node.target, "__name__", "")
        return {"add": "aten::add", "sub": "aten::sub", "neg": "aten::neg"}.get(python, "")
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def _is_complex(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return isinstance(value, Tensor) and value.is_complex()


def _is_floating(node: fx.Node) -> bool:
    leaves = pytree.tree_leaves(node.meta.get("val"))
    tensors = [v for v in leaves if isinstance(v, Tensor)]
    return any(t.is_floating_point() or t.is_complex() for t in tensors) or len(tensors) < len(leaves) or not leaves
