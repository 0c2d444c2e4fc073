"""Degrees of the tensors of a running forward pass: a guide for rewriting; the certificate is the judge."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from axiograd.homogeneity.domain import Value
from axiograd.homogeneity.findings import Findings
from axiograd.homogeneity.interpret import Interpreter
from axiograd.homogeneity.rules import lookup
from axiograd.homogeneity.rules.elementwise import POWERS, SIGNS
from axiograd.homogeneity.rules.linear import LAYERS, PRODUCTS
from axiograd.homogeneity.rules.random import DRAWS
from axiograd.homogeneity.rules.shape import ONLY_SHAPE
from axiograd.homogeneity.tracing.private_torch import is_operator


class _State(threading.local):
    table: WeakTensorKeyDictionary | None = None
    rewriter: object | None = None


_state = _State()

#: Results that do not scale, whatever goes in.
CONSTANT = {*ONLY_SHAPE.split(), *DRAWS.split(), *SIGNS.split(), "bernoulli", "full_like", "new_full", "new_tensor"}
CONSTANT |= {"new_zeros", "normalize", "zeros_like"}
#: Results that scale as their first argument does.
FIRST = {"as", "expand_as", "fill", "reshape_as", "to", "type_as", "view_as", "zero"}
#: Results that scale as the product of their arguments.
PRODUCT = {*PRODUCTS.split(), *LAYERS.split(), "bilinear", "mul", "multiply"}


@contextmanager
def rewriting(rewriter: object) -> Iterator[None]:
    """Make `rewriter` the one that acts; the outermost one brings the table of degrees."""
    before, table = _state.rewriter, _state.table
    _state.rewriter = rewriter
    _state.table = WeakTensorKeyDictionary() if table is None else table
    try:
        yield
    finally:
        _state.rewriter, _state.table = before, table


@contextmanager
def suspended() -> Iterator[None]:
    """Nothing is rewritten inside."""
    before = _state.rewriter
    _state.rewriter = None
    try:
        yield
    finally:
        _state.rewriter = before


def acts(rewriter: object) -> bool:
    return _state.rewriter is rewriter


def track(tree: Any, degree: float) -> None:
    """Note the degree of every floating-point tensor in a structure, if a rewritten forward pass is under way."""
    if _state.table is None:
        return
    for leaf in tree_leaves(tree):
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            _state.table[leaf] = degree


def degree_of(value: Any, default: float = 0.0) -> float:
    """The degree that was noted for a tensor; numbers and tensors never seen are constants."""
    if _state.table is None or not isinstance(value, Tensor):
        return 0.0 if not isinstance(value, Tensor) else default
    noted: float = _state.table.get(value, default)
    return noted


def follow(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """The degree of a function's result from those of its arguments; by name, and generous: it need not be sound."""
    if name in CONSTANT:
        return 0.0
    degrees = [degree_of(leaf) for leaf in tree_leaves((args, kwargs))]
    first = degree_of(args[0]) if args else 0.0
    special: dict[str, Callable[[], float]] = {
        "div": lambda: first - degree_of(args[1]),
        "copy": lambda: degree_of(args[1]),
        "pow": lambda: first * float(args[1]) if isinstance(args[1], int | float) else first,
        "scaled_dot_product_attention": lambda: degree_of(kwargs.get("value", args[2] if len(args) > 2 else None)),  # noqa: PLR2004
    }
    if name in special:
        return special[name]()
    if name in FIRST:
        return first
    if name in PRODUCT:
        return sum(degrees)
    if name in POWERS:
        return first * POWERS[name]
    return max(degrees, key=abs, default=0.0)


def ruled(func: Any) -> Any:
    """An operator that is not PyTorch's own and has a rule, or None."""
    target = getattr(func, "default", func)  # an operator may be called without its overload
    own = is_operator(target) and target.namespace not in {"aten", "prims"}
    return target if own and lookup(target._schema.name) is not None else None  # noqa: SLF001 - no public name


def by_rule(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> float:
    """The degree of an operator's result as the certificate would have it."""
    graph = fx.Graph()
    interpreter = Interpreter(torch.nn.Module(), Findings())

    def given(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        node = graph.placeholder(f"x{len(interpreter.environment)}")
        node.meta["val"] = leaf
        interpreter.environment[node] = Value(degree=degree_of(leaf), moves=True)
        return node

    node = graph.call_function(operator, tree_map(given, args), tree_map(given, kwargs))
    node.meta["val"] = result
    interpreter.run([node])
    values = tree_leaves(interpreter.environment[node])
    return max((v.degree or 0.0 for v in values if isinstance(v, Value)), key=abs, default=0.0)
