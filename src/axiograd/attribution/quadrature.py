"""Nodes and weights on [0, 1] for the path integral."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from axiograd.errors import ConfigurationError

Rule: TypeAlias = Literal["gausslegendre", "riemann_left", "riemann_right", "riemann_middle", "riemann_trapezoid"]


@lru_cache(maxsize=64)
def nodes_and_weights(rule: Rule, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """∫₀¹ f(α) dα ≈ Σ wᵢ f(αᵢ); the weights add up to 1.

    >>> nodes_and_weights("riemann_middle", 2)
    (array([0.25, 0.75]), array([0.5, 0.5]))
    """
    if rule not in get_args(Rule):
        raise ConfigurationError(f"method={rule!r}: expected one of {', '.join(get_args(Rule))}.")
    least = 2 if rule == "riemann_trapezoid" else 1
    if n < least:
        raise ConfigurationError(f"n_steps={n}: {rule} needs at least {least}.")
    if rule == "gausslegendre":
        nodes, weights = np.polynomial.legendre.leggauss(n)
        return (nodes + 1) / 2, weights / 2
    if rule == "riemann_trapezoid":
        weights = np.full(n, 1 / (n - 1))
        weights[[0, -1]] /= 2
        return np.linspace(0, 1, n), weights
    offset = {"riemann_left": 0.0, "riemann_middle": 0.5, "riemann_right": 1.0}[rule]
    return (np.arange(n) + offset) / n, np.full(n, 1 / n)
