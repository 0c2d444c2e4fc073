"""Random numbers of Python and NumPy that a model draws while it is traced: the next call may run other operators."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from axiograd.homogeneity.certificate import Violation


@contextmanager
def draws_noticed() -> Iterator[list[str]]:
    """The generators that were drawn from, filled in at the end; both are put back as they were.

    >>> with draws_noticed() as drawn:
    ...     _ = random.random()
    >>> drawn
    ['random']
    """
    drawn: list[str] = []
    python: Any = random.getstate()
    numpy: Any = np.random.get_state(legacy=False)  # noqa: NPY002 - the one that code without a generator draws from
    try:
        yield drawn
    finally:
        if random.getstate() != python:
            drawn.append("random")
            random.setstate(python)
        if not _equal(np.random.get_state(legacy=False), numpy):  # noqa: NPY002
            drawn.append("numpy.random")
            np.random.set_state(numpy)  # noqa: NPY002


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return bool(np.array_equal(a, b))


def own_generator() -> Violation:
    """What the certificate says about a torch.Generator that a model keeps."""
    return Violation(
        module="",
        op="torch.Generator",
        source="",
        reason="The model draws from a torch.Generator of its own, whose draws are others at each call.",
        fix="Draw from torch's default generator, whose draws are held fixed, or pass what was drawn as an argument.",
        kind="random",
    )


def randomness(generator: str) -> Violation:
    """What the certificate says about a draw."""
    return Violation(
        module="",
        op=generator,
        source="",
        reason=f"The model draws from {generator} as it runs: another call may run other operators than those seen.",
        fix="Draw with torch, whose draws the proof holds fixed, or pass the choice as an argument.",
        kind="random",
    )
