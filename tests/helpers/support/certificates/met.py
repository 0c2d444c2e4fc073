"""Which rules were asked."""

from collections.abc import Iterator
from contextlib import contextmanager

from axiograd.homogeneity.rules.registry import RULES


@contextmanager
def names_met() -> Iterator[set[str]]:
    """The names under which rules are asked in the meantime."""
    met, before = set(), dict(RULES)

    def noted(name, rule):
        def ask(call):
            met.add(name)
            return rule(call)

        return ask

    RULES.update({name: noted(name, rule) for name, rule in before.items()})
    try:
        yield met
    finally:
        RULES.clear()
        RULES.update(before)
