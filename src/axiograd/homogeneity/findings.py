"""Where rules send what they find: violations once each, epsilons, assumptions."""

from typing import Any

from torch import fx

from axiograd.homogeneity.certificate import Epsilon, Violation
from axiograd.homogeneity.nodes import locate, title


class Sink:
    """Drops whatever rules send it: for those that are asked only for a sharper answer."""

    def violation(self, node: fx.Node, **what: Any) -> None: ...
    def epsilon(self, node: fx.Node, size: float) -> None: ...
    def assume(self, text: str) -> None: ...
    def exponent(self, names: tuple[str, ...]) -> None: ...


class AssumptionsOnly(Sink):
    """Passes on what is assumed, and nothing else."""

    def __init__(self, report: Sink) -> None:
        self._report = report

    def assume(self, text: str) -> None:
        self._report.assume(text)


class Findings(Sink):
    """What a certificate is made of."""

    def __init__(self) -> None:
        self._violations: dict[tuple[str, ...], Violation] = {}
        self._epsilons: dict[Epsilon, None] = {}
        self._assumptions: dict[str, None] = {}
        #: Parameters that were read as exponents.
        self.exponents: set[str] = set()

    def violation(self, node: fx.Node, **what: Any) -> None:
        place = locate(node)
        self.add(Violation(module=place.module, source=place.source, code=place.code, **what))

    def add(self, violation: Violation) -> None:
        key = (violation.module, violation.op, violation.source, violation.reason)
        self._violations.setdefault(key, violation)

    def epsilon(self, node: fx.Node, size: float) -> None:
        place = locate(node)
        self._epsilons[Epsilon(place.module, title(node.target), place.source, size)] = None

    def assume(self, text: str) -> None:
        self._assumptions[text] = None

    def exponent(self, names: tuple[str, ...]) -> None:
        self.exponents.update(names)

    @property
    def violations(self) -> tuple[Violation, ...]:
        return tuple(self._violations.values())

    @property
    def epsilons(self) -> tuple[Epsilon, ...]:
        return tuple(self._epsilons)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return tuple(self._assumptions)
