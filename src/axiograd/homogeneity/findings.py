"""Where rules send what they find: violations once each, epsilons, assumptions."""

from typing import Any

from torch import fx

from axiograd.homogeneity.certificate import Epsilon, Violation
from axiograd.homogeneity.nodes import locate, title


class Findings:
    """What a certificate is made of."""

    def __init__(self) -> None:
        self._violations: dict[tuple[str, ...], Violation] = {}
        self._epsilons: dict[Epsilon, None] = {}
        self._assumptions: dict[str, None] = {}
        #: Parameters that were read as exponents.
        self.exponents: set[str] = set()

    def violation(self, node: fx.Node, **what: Any) -> None:
        self.add(violation_at(node, **what))

    def add(self, violation: Violation) -> None:
        key = (violation.module, violation.op, violation.source, violation.reason)
        self._violations.setdefault(key, violation)

    def epsilon(self, node: fx.Node, size: float) -> None:
        place = locate(node)
        self._epsilons[Epsilon(place.module, title(node.target), place.source, size)] = None

    def assume(self, text: str) -> None:
        self._assumptions[text] = None

    @property
    def violations(self) -> tuple[Violation, ...]:
        return tuple(self._violations.values())

    @property
    def epsilons(self) -> tuple[Epsilon, ...]:
        return tuple(self._epsilons)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return tuple(self._assumptions)


def violation_at(node: fx.Node, **what: Any) -> Violation:
    """A violation with the module and the line of the user's code that the node comes from."""
    place = locate(node)
    return Violation(module=place.module, source=place.source, code=place.code, **what)
