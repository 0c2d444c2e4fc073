"""Rules by operator name, and the decorator that adds your own."""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from axiograd.homogeneity.degrees import Value
from axiograd.homogeneity.rules.call import Call

Result: TypeAlias = Value | float | tuple[Value | float, ...]
Rule: TypeAlias = Callable[[Call], Result]
R = TypeVar("R", bound=Rule)

RULES: dict[str, Rule] = {}
#: Grows with every registration, so that no proof outlives the rules that it was made with.
REVISIONS: list[int] = []


def rule(*operators: str) -> Callable[[R], R]:
    """Add a rule for an operator: a function from the call to the degree of its result.

    `call["name"]` is an argument by its name in the operator's schema, `call.degree("name")` its degree,
    `call.join(a, b)` the one degree of values that are added, `call.product(a, b)` that of values that are
    multiplied, `call.report(reason, fix)` a violation.

    >>> import torch, axiograd.homogeneity as h
    >>> @torch.library.custom_op("doctest::cube", mutates_args=())
    ... def cube(x: torch.Tensor) -> torch.Tensor:
    ...     return x**3
    >>> _ = cube.register_fake(torch.empty_like)
    >>> h.certify(cube, torch.ones(2)).violations[0].reason
    'No rule for doctest.cube, so nothing is known about its result.'
    >>> @h.rule("doctest::cube")
    ... def cube_rule(call):
    ...     return 3 * call.degree("x")
    >>> h.certify(cube, torch.ones(2)).degree
    3.0
    """

    def register(function: R) -> R:
        for name in operators:
            RULES[name] = function
        REVISIONS.append(len(operators))
        return function

    return register


def aten(names: str) -> tuple[str, ...]:
    """Full names of several of PyTorch's own operators.

    >>> aten("add mul")
    ('aten::add', 'aten::mul')
    """
    return tuple(f"aten::{name}" for name in names.split())


def lookup(name: str) -> Rule | None:
    """The rule of an operator; an in-place operator has the rule of its functional twin."""
    found = RULES.get(name)
    if found is None and name.endswith("_"):
        found = RULES.get(name[:-1])
    return found
