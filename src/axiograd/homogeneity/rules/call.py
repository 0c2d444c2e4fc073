"""One operator call as a rule sees it: arguments by name, and ways to answer."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import fx

from axiograd.homogeneity.domain import Conflict, Value, join, number, of_degree, product, same
from axiograd.homogeneity.findings import Sink
from axiograd.homogeneity.nodes import shape_of

#: A larger "epsilon" is a constant like any other.
LARGEST_EPSILON = 1e-3
#: Remedies that several rules name.
CONSTANT_FIX = "Take the constant out, or let axiograd.to_xdnn strip it."
DEGREES_FIX = (
    "Bring both to one degree, e.g. by a scale-keeping normalisation; axiograd.to_xdnn does it, "
    "or lifts the whole model."
)
BIAS_FIX = "Build the layer with bias=False, or let axiograd.to_xdnn strip the bias."
LIFT_FIX = 'axiograd.to_xdnn(how="lift") makes any model homogeneous.'


class Call:
    """Call by their names in the operator's schema; tensors appear as `Value`."""

    def __init__(
        self,
        node: fx.Node,
        name: str,
        arguments: dict[str, Any],
        sink: Sink,
        known: Mapping[fx.Node, Any] | None = None,
    ) -> None:
        #: What is known about the nodes before this one.
        self.known = {} if known is None else known
        self.node = node
        self.name = name
        self.arguments = arguments
        self._sink = sink
        #: Set once a violation or an epsilon is reported.
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

    def first(self) -> Value:
        """The first tensor argument."""
        return next(self.values())

    def values(self) -> Iterator[Value]:
        """All tensor arguments."""
        return flatten(self.arguments.values())

    def degree(self, name: str) -> float:
        """Degree of an argument; 0 for one that has every degree."""
        return self.value(name).degree or 0.0

    def shape(self) -> tuple[Any, ...]:
        """Sizes of the first argument."""
        return shape_of(self.node.args[0]) or ()

    def report(self, reason: str, fix: str, *, kind: str = "activation", parameters: tuple[str, ...] = ()) -> None:
        self.sound = False
        self._sink.violation(self.node, op=self.title, reason=reason, fix=fix, kind=kind, parameters=parameters)

    def epsilon(self, size: float) -> None:
        self.exact = False
        self._sink.epsilon(self.node, size)

    def assume(self, text: str) -> None:
        self._sink.assume(text)

    def exponent(self, names: tuple[str, ...]) -> None:
        """The degree depends on these parameters."""
        self._sink.exponent(names)

    def join(self, *values: Value, role: str = "a sum", kind: str = "constant") -> Value:
        """The one degree of values that are added, compared or put side by side; reports if there is none."""
        result = join(values)
        if isinstance(result, Value):
            return result
        self._report_conflict(result, role, kind)
        return of_degree(result.degree)

    def product(self, *values: Value) -> Value:
        return product(values)

    def require_invariant(
        self, value: Value, reason: str, fix: str, *, kind: str = "activation", then: Value | None = None
    ) -> Value:
        """The result of an operator that needs an argument of degree 0, or `then` where it is not."""
        if is_invariant(value):
            return of_degree(0)
        self.report(reason, fix, kind=kind)
        return of_degree(0) if then is None else then

    def _report_conflict(self, conflict: Conflict, role: str, kind: str) -> None:
        if len(conflict.degrees) > 1:
            degrees = " and ".join(f"{d:g}" for d in conflict.degrees)
            self.report(
                f"{role.capitalize()} mixes values of degree {degrees}, so it has no degree of its own.",
                DEGREES_FIX,
                kind="degrees",
            )
        if conflict.constants:
            names, text = describe_constants(conflict.constants)
            self.report(
                f"{role.capitalize()} mixes {text} with a value of degree {conflict.degree:g}; "
                "only zero can stand beside it.",
                CONSTANT_FIX,
                kind=kind,
                parameters=names,
            )


def as_value(item: Any) -> Value:
    if isinstance(item, Value):
        return item
    if isinstance(item, bool | int | float | complex):
        return number(item)
    raise TypeError(f"{item!r} is not a value.")


def is_invariant(value: Value) -> bool:
    """Degree 0, known or free."""
    return not value.unknown and (value.degree is None or same(value.degree, 0))


def flatten(items: Iterable[Any]) -> Iterator[Value]:
    for item in items:
        if isinstance(item, Value):
            yield item
        elif isinstance(item, list | tuple):
            yield from flatten(item)
        elif isinstance(item, dict):
            yield from flatten(item.values())


def describe_constants(constants: Iterable[Value]) -> tuple[tuple[str, ...], str]:
    """Names of the parameters behind some constants, and words for them."""
    names: list[str] = []
    values: list[float] = []
    for value in constants:
        if value.constant is None:
            continue
        names += [n for n in value.constant.names if n not in names]
        uniform = value.constant.uniform()
        if uniform is not None:
            values.append(uniform)
    if names:
        return tuple(names), f"the constant {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"  # noqa: PLR2004 - three names suffice
    if values:
        return (), f"the constant {values[0]:g}"
    return (), "a constant"
