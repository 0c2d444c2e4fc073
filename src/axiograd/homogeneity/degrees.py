"""The algebra of degrees: what the certificate knows about each tensor of a program.

A value v has degree k if v(αx) = αᵏ·v(x) for every α > 0. Constants have degree 0. Degrees add in products, multiply
in powers, and must agree in sums. A value made of 0 and ±∞ only is its own multiple by every α, so it has every degree
at once: it is *free*. That makes ∞ a safe divisor: x/∞ is 0, whatever the degree of x.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import torch
from torch import Tensor, fx

#: Degrees closer than this are one degree; exponents such as 1/3 are not exact in binary.
DEGREE_TOLERANCE = 1e-12


class KnownConstant:
    """A tensor or number that no input reaches, computed only when a rule asks for it."""

    def __init__(self, compute: Callable[[], Any], names: tuple[str, ...] = ()) -> None:
        self._compute = compute
        #: Parameters and buffers that it was made from.
        self.names = names

    @cached_property
    def value(self) -> Any:
        """The number(s), or None where they cannot be had (meta device, symbolic sizes)."""
        with torch.no_grad():
            return self._compute()

    @cached_property
    def is_zero(self) -> bool:
        return _all(self.value, lambda t: t == 0)

    @cached_property
    def is_free(self) -> bool:
        """Only 0 and ±∞."""
        return _all(self.value, lambda t: t == 0 if t.is_complex() else (t == 0) | t.isinf())

    @cached_property
    def number(self) -> float | None:
        """The one number that all entries are, or None."""
        value = self.value
        if isinstance(value, bool | int | float):
            return float(value)
        if not isinstance(value, Tensor) or value.is_meta or value.numel() == 0 or value.is_complex():
            return None
        first = value.detach().reshape(-1)[0]
        return float(first) if bool((value == first).all()) else None


def _all(value: Any, test: Callable[[Tensor], Tensor]) -> bool:
    if isinstance(value, list | tuple):
        return all(_all(item, test) for item in value)
    if isinstance(value, bool | int | float | complex):
        value = torch.tensor(value)
    if not isinstance(value, Tensor) or value.is_meta or value.is_quantized:
        return False
    return bool(test(value).all())


@dataclass(frozen=True, slots=True)
class Value:
    """What is known about one value of the program."""

    #: None: free (every degree), unless `unknown`.
    degree: float | None
    #: Identically zero.
    zero: bool = False
    #: Nothing is known, for a reason that has been reported.
    unknown: bool = False
    constant: KnownConstant | None = None
    #: False: a violation lies upstream, `degree` is what it would be without it.
    sound: bool = True
    #: False: an epsilon lies upstream.
    exact: bool = True
    #: The value is `offset` plus something of degree `degree` (only with a baseline).
    offset: Any = None
    #: The gradient passes here: the value changes with the input even while every gate is held.
    moves: bool = False
    #: Why it is not affine in the input while every gate is held: the operators that bend it, each with a reason.
    bends: tuple[tuple[fx.Node, str], ...] = ()

    def is_zero(self) -> bool:
        return self.zero or (self.constant is not None and self.constant.is_zero)

    def is_free(self) -> bool:
        """Every degree at once; asks a constant for its numbers."""
        if self.unknown:
            return False
        return self.degree is None or (self.constant is not None and self.constant.is_free)

    def is_invariant(self) -> bool:
        """Degree 0, known or free."""
        return not self.unknown and (self.degree is None or same(self.degree, 0))

    def bare(self) -> "Value":
        """The degree alone, without where it came from."""
        return Value(degree=self.degree, zero=self.zero, unknown=self.unknown)

    def after(self, values: Iterable["Value"]) -> "Value":
        """The same, with what lies upstream of it in these values."""
        values = [self, *values]
        bent = {id(v.bends): v.bends for v in values if v.bends}
        return replace(
            self,
            sound=all(v.sound for v in values),
            exact=all(v.exact for v in values),
            moves=any(v.moves for v in values),
            bends=next(iter(bent.values())) if len(bent) == 1 else tuple(dict.fromkeys(chain(*bent.values()))),
        )


ZERO = Value(degree=None, zero=True)
FREE = Value(degree=None)
UNKNOWN = Value(degree=None, unknown=True, sound=False)


def of_degree(degree: float) -> Value:
    return Value(degree=float(degree))


def number(value: complex) -> Value:
    """A Python number in the program."""
    constant = KnownConstant(lambda: value)
    return Value(degree=None if constant.is_free else 0.0, zero=value == 0, constant=constant)


def same(a: float, b: float) -> bool:
    return abs(a - b) <= DEGREE_TOLERANCE * max(1.0, abs(a), abs(b))


@dataclass(frozen=True)
class Conflict:
    """Values of different degrees met where one is needed."""

    degree: float
    constants: tuple[Value, ...]
    degrees: tuple[float, ...]


def join(values: Iterable[Value]) -> Value | Conflict:
    """The one degree of several values that are added, compared or put side by side.

    >>> join([of_degree(2), of_degree(2), number(0)]).degree
    2.0
    >>> join([of_degree(2), of_degree(1)]).degrees
    (1.0, 2.0)
    """
    everything = list(values)
    scaling = [v for v in everything if v.degree is not None]
    if not _agree(scaling) or (scaling and all(v.constant is not None for v in scaling)):
        # Numbers are looked at only where they decide.
        scaling = [v for v in scaling if v.constant is None or not v.is_free()]
    if not scaling:
        return ZERO if all(v.is_zero() for v in everything) else FREE
    if _agree(scaling):
        return of_degree(scaling[0].degree or 0.0)
    degrees = tuple(sorted({v.degree or 0.0 for v in scaling if v.constant is None}))
    return Conflict(degrees[-1], tuple(v for v in scaling if v.constant is not None), degrees)


def product(values: Iterable[Value]) -> Value:
    """Degrees add; zero times anything is zero.

    >>> product([of_degree(2), of_degree(1)]).degree
    3.0
    """
    everything = list(values)
    if any(v.zero for v in everything):
        return ZERO
    if any(v.degree is None for v in everything):
        return FREE
    return of_degree(sum(v.degree or 0.0 for v in everything))


def power(value: Value, exponent: float) -> Value:
    """Degrees multiply.

    >>> power(of_degree(3), -0.5).degree
    -1.5
    """
    if exponent == 0:
        return of_degree(0)
    if value.degree is None:
        return ZERO if value.zero and exponent > 0 else FREE
    return of_degree(value.degree * exponent)


def _agree(values: list[Value]) -> bool:
    return all(same(v.degree or 0.0, values[0].degree or 0.0) for v in values)
