"""One operator call as a rule sees it: arguments by name, and ways to answer."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from torch import Tensor, fx

from axiograd.homogeneity.degrees import Conflict, Value, join, number, of_degree, product
from axiograd.homogeneity.findings import Findings
from axiograd.homogeneity.nodes import schema_of, shape_of

#: A larger "epsilon" is a constant like any other.
LARGEST_EPSILON = 1e-3
#: Remedies that several rules name.
CONSTANT_FIX = "Take the constant out, or convert the model: axiograd.to_xdnn(model, examples)."
DEGREES_FIX = (
    "Bring both to one degree, e.g. by a scale-keeping normalisation, or convert the model: "
    "axiograd.to_xdnn(model, examples)."
)
BIAS_FIX = "Build the layer with bias=False, or convert the model: axiograd.to_xdnn(model, examples)."
LIFT_FIX = 'axiograd.to_xdnn(model, examples, how="lift") makes any model homogeneous.'
#: Arguments that choose or scale the terms of an operator, and are none.
_NO_TERMS = {"index", "indices", "mask", "condition", "sorter", "alpha", "beta"}
_NAMES_SHOWN = 3


class Call:
    """Arguments by their names in the operator's schema; tensors appear as `Value`."""

    def __init__(
        self,
        node: fx.Node,
        name: str,
        arguments: dict[str, Any],
        findings: Findings | None,
        known: Mapping[fx.Node, Any],
    ) -> None:
        self.node = node
        self.name = name
        self.arguments = arguments
        #: What is known about the nodes before this one.
        self.known = known
        #: None: the rule is asked for its answer only.
        self._findings = findings
        #: False once a violation or an epsilon is reported.
        self.sound = True
        self.exact = True

    @property
    def title(self) -> str:
        return self.name.replace("::", ".")

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get(self, name: str, default: Any = None) -> Any:
        value = self.arguments.get(name)
        return default if value is None else value

    def value(self, name: str) -> Value:
        """An argument as a value, numbers included."""
        return as_value(self.arguments[name])

    def given(self, *names: str) -> list[Value]:
        """Those of some arguments that are not None, as values."""
        return [as_value(self.arguments[name]) for name in names if self.arguments.get(name) is not None]

    def first(self) -> Value:
        """The first tensor argument."""
        return next(self.values())

    def values(self) -> Iterator[Value]:
        """All tensor arguments."""
        return flatten(self.arguments.values())

    def terms(self) -> list[Value]:
        """Tensors and numbers that are added, compared, multiplied or put side by side; no masks, no indices."""
        names = _term_names(self.node.target)
        found: list[Value] = []
        for name, given in self.arguments.items():
            if names is None or name in names:
                found += [number(given)] if isinstance(given, int | float | complex) else flatten([given])
        return found

    def degree(self, name: str) -> float:
        """Degree of an argument; 0 for one that has every degree."""
        return self.value(name).degree or 0.0

    def shape(self) -> tuple[Any, ...]:
        """Sizes of the first argument."""
        return shape_of(self.node.args[0]) or ()

    def per_result(self, value: Value) -> "Value | tuple[Value, ...]":
        """The value for each result of the operator; integers and booleans (places, masks) have degree 0."""
        results = self.node.meta.get("val")
        if not isinstance(results, list | tuple):
            return value
        return tuple(
            value if isinstance(r, Tensor) and (r.is_floating_point() or r.is_complex()) else of_degree(0)
            for r in results
        )

    def report(self, reason: str, fix: str, *, kind: str = "activation", parameters: tuple[str, ...] = ()) -> None:
        self.sound = False
        if self._findings is not None:
            self._findings.violation(self.node, op=self.title, reason=reason, fix=fix, kind=kind, parameters=parameters)

    def epsilon(self, size: float) -> None:
        self.exact = False
        if self._findings is not None:
            self._findings.epsilon(self.node, size)

    def assume(self, text: str) -> None:
        if self._findings is not None:
            self._findings.assume(text)

    def exponent(self, names: tuple[str, ...]) -> None:
        """The degree depends on these parameters."""
        if self._findings is not None:
            self._findings.exponents.update(names)

    def join(self, *values: Value, kind: str = "constant") -> Value:
        """The one degree of values that are added, compared or put side by side; reports if there is none."""
        result = join(values)
        if isinstance(result, Value):
            return result
        self._report_conflict(result, kind)
        return of_degree(result.degree)

    def product(self, *values: Value) -> Value:
        return product(values)

    def require_invariant(
        self, value: Value, reason: str, fix: str, *, kind: str = "activation", then: Value | None = None
    ) -> Value:
        """The result of an operator that needs an argument of degree 0, or `then` where it is not."""
        if value.is_invariant():
            return of_degree(0)
        self.report(reason, fix, kind=kind)
        return of_degree(0) if then is None else then

    def _report_conflict(self, conflict: Conflict, kind: str) -> None:
        if len(conflict.degrees) > 1:
            degrees = " and ".join(f"{d:g}" for d in conflict.degrees)
            self.report(
                f"{self.title} mixes values of degree {degrees}, so it has no degree of its own.",
                DEGREES_FIX,
                kind="degrees",
            )
        if conflict.constants:
            names, text = describe_constants(conflict.constants)
            self.report(
                f"{self.title} mixes {text} with a value of degree {conflict.degree:g}; only 0 keeps the degree.",
                CONSTANT_FIX,
                kind=kind,
                parameters=names,
            )


@cache
def _term_names(target: Any) -> frozenset[str] | None:
    schema = schema_of(target)
    if schema is None:
        return None
    kinds = {a.name: str(a.type) for a in schema.arguments}
    return frozenset(n for n, kind in kinds.items() if ("Tensor" in kind or "number" in kind) and n not in _NO_TERMS)


def as_value(item: Any) -> Value:
    if isinstance(item, Value):
        return item
    if isinstance(item, bool | int | float | complex):
        return number(item)
    raise TypeError(f"{item!r} is not a value.")


def flatten(items: Iterable[Any]) -> Iterator[Value]:
    """All values in some arguments, however deep."""
    for item in items:
        if isinstance(item, Value):
            yield item
        elif isinstance(item, list | tuple):
            yield from flatten(item)
        elif isinstance(item, dict):
            yield from flatten(item.values())


def describe_constants(constants: Iterable[Value]) -> tuple[tuple[str, ...], str]:
    """Names of the parameters behind some constants, and words for them."""
    known = [value.constant for value in constants if value.constant is not None]
    names = tuple(dict.fromkeys(name for constant in known for name in constant.names))
    if names:
        return names, f"the constant {', '.join(names[:_NAMES_SHOWN])}{' …' if len(names) > _NAMES_SHOWN else ''}"
    numbers = [constant.number for constant in known if constant.number is not None]
    return (), f"the constant {numbers[0]:g}" if numbers else "a constant"
