"""Abstract values: what the certificate knows about each tensor of a program.

A value v has degree k when v(αx) = αᵏ·v(x) for every α > 0. Constants have degree 0. A value made of 0 and ±∞
only is its own multiple by every α, so it has every degree at once; we call it free.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

#: Degrees closer than this are one degree; exponents such as 1/3 are not exact in binary.
DEGREE_TOLERANCE = 1e-12


class KnownConstant:
    """A known tensor, computed only when a rule asks for its numbers."""

    def __init__(self, compute: Callable[[], Any], names: tuple[str, ...] = ()) -> None:
        self._compute, self.names = compute, names

    @cached_property
    def _value(self) -> Any:
        with torch.no_grad():
            return self._compute()

    def value(self) -> Any:
        """The number(s), or None where they cannot be had (meta device, symbolic sizes)."""
        return self._value

    @cached_property
    def _zero(self) -> bool:
        return _all(self._value, lambda t: t == 0)

    def is_zero(self) -> bool:
        return self._zero

    @cached_property
    def _free(self) -> bool:
        return _all(self._value, lambda t: t == 0 if t.is_complex() else (t == 0) | t.isinf())

    def is_free(self) -> bool:
        """Only 0 and ±∞."""
        return self._free

    def uniform(self) -> float | None:
        """The one number that all entries are, or None."""
        value = self.value()
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
    #: Depends on an input that scales, through floating-point numbers: the gradient passes here.
    moves: bool = False
    #: Which places of new memory have not been written yet.
    blank: Tensor | None = None

    def is_zero(self) -> bool:
        return self.zero or (self.constant is not None and self.constant.is_zero())

    def is_free(self) -> bool:
        """Every degree at once; asks a constant for its numbers."""
        if self.unknown:
            return False
        return self.degree is None or (self.constant is not None and self.constant.is_free())

    @property
    def is_constant(self) -> bool:
        return self.constant is not None

    def marked(self, *, sound: bool, exact: bool, moves: bool) -> "Value":
        if (self.sound, self.exact, self.moves) == (sound, exact, moves):
            return self
        return replace(self, sound=sound, exact=exact, moves=moves)


ZERO = Value(degree=None, zero=True)
FREE = Value(degree=None)
UNKNOWN = Value(degree=None, unknown=True)


def of_degree(degree: float) -> Value:
    return Value(degree=float(degree))


def number(value: complex) -> Value:
    """A Python number in the program."""
    constant = KnownConstant(lambda: value)
    return Value(degree=None if constant.is_free() else 0.0, zero=value == 0, constant=constant)


def same(a: float, b: float) -> bool:
    return abs(a - b) <= DEGREE_TOLERANCE * max(1.0, abs(a), abs(b))


@dataclass(frozen=True)
class Conflict:
    """Values of different degrees met where one is needed."""

    degree: float
    constants: tuple[Value, ...]
    degrees: tuple[float, ...]


def join(values: Iterable[Value]) -> Value | Conflict:
    """The one degree of several values that are added, compared or put side by side."""
    everything = list(values)
    scaling = [v for v in everything if v.degree is not None]
    if not _agree(scaling) or (scaling and all(v.is_constant for v in scaling)):
        scaling = [v for v in scaling if not (v.is_constant and v.is_free())]
    if not scaling:
        return ZERO if all(v.is_zero() for v in everything) else FREE
    if _agree(scaling):
        return of_degree(_degree(scaling[0]))
    moving = [v for v in scaling if not v.is_constant]
    degrees = tuple(sorted({_degree(v) for v in moving}))
    return Conflict(
        degree=degrees[-1],
        constants=tuple(v for v in scaling if v.is_constant),
        degrees=degrees,
    )


def product(values: Iterable[Value]) -> Value:
    """Degrees add; zero times anything is zero."""
    everything = list(values)
    if any(v.zero for v in everything):
        return ZERO
    if any(v.degree is None for v in everything):
        return FREE
    return of_degree(sum(_degree(v) for v in everything))


def power(value: Value, exponent: float) -> Value:
    """Degrees multiply."""
    if exponent == 0:
        return of_degree(0)
    if value.degree is None:
        return ZERO if value.zero and exponent > 0 else FREE
    return of_degree(_degree(value) * exponent)


def _degree(value: Value) -> float:
    return 0.0 if value.degree is None else value.degree


def _agree(values: list[Value]) -> bool:
    return all(same(_degree(v), _degree(values[0])) for v in values)
