"""Integrated Gradients (Sundararajan et al., 2017)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from axiograd._calls import Call, Model
from axiograd._typing import Inputs, Target
from axiograd.attribution._chunks import rows_at_once
from axiograd.attribution._path import PathMethod, PathStep, integrate
from axiograd.attribution.base import AttributionCall, Computed
from axiograd.attribution.captum_calls import called_as_in_captum
from axiograd.attribution.layer import Layer
from axiograd.attribution.passes import run
from axiograd.errors import ConfigurationError

Rule: TypeAlias = Literal["gausslegendre", "riemann_left", "riemann_right", "riemann_middle", "riemann_trapezoid"]


class IntegratedGradients(PathMethod):
    """IGᵢ = (xᵢ − x′ᵢ) · ∫₀¹ ∂F(x′ + α(x − x′))/∂xᵢ dα, by quadrature with ``n_steps`` gradients.

    At most ``internal_batch_size`` samples × steps are in memory at once, so memory does not grow with n_steps.
    With ``multiply_by_inputs=False`` the factor xᵢ − x′ᵢ is left out: the average gradient along the path.
    With ``layer=`` the path goes from layer(x′) to layer(x), where x′ is zero by default (of token ids: id 0). A tensor
    in the dimensions of the layer's output, and not of the inputs, is a baseline of that output.

    >>> x = torch.tensor([[1.0, 2.0]])
    >>> IntegratedGradients(lambda x: (x**3).sum(1), n_steps=2).attribute(x, baselines=1.0)
    tensor([[0., 7.]])
    """

    layer_baselines_of_inputs = True

    def __init__(
        self,
        model: Model,
        n_steps: int = 128,
        method: Rule = "gausslegendre",
        internal_batch_size: int | None = None,
        *,
        multiply_by_inputs: bool = True,
        layer: Layer | None = None,
    ) -> None:
        super().__init__(model, layer=layer)
        if isinstance(n_steps, bool):
            raise ConfigurationError(
                f"n_steps={n_steps!r}: expected a whole number of at least 1. Captum's second argument is by name: "
                f"IntegratedGradients(model, multiply_by_inputs={n_steps!r})."
            )
        check_count("n_steps", n_steps)
        nodes_and_weights(method, n_steps)
        check_rows(internal_batch_size)
        self.n_steps = n_steps
        self.method = method
        self.internal_batch_size = internal_batch_size
        self.multiply_by_inputs = multiply_by_inputs

    @called_as_in_captum(
        "baselines",
        "target",
        "additional_forward_args",
        "n_steps",
        "method",
        "internal_batch_size",
        "return_convergence_delta",
    )
    def attribute(
        self,
        inputs: Inputs,
        target: Target = None,
        *,
        n_steps: int | None = None,
        method: Rule | None = None,
        internal_batch_size: int | None = None,
        **call: Any,
    ) -> Any:
        """As the base's; steps, rule and chunk may be given for one call, as Captum has them.

        >>> x = torch.tensor([[1.0, 2.0]])
        >>> IntegratedGradients(lambda x: (x**3).sum(1)).attribute(x, baselines=1.0, n_steps=2)
        tensor([[0., 7.]])
        """
        given = {"n_steps": n_steps, "method": method, "internal_batch_size": internal_batch_size}
        changed = {name: value for name, value in given.items() if value is not None}
        if not changed:
            return super().attribute(inputs, target, **call)
        own: dict[str, Any] = {name: getattr(self, name) for name in given}
        own |= changed | {"multiply_by_inputs": self.multiply_by_inputs, "layer": self.layer}
        return type(self)(self.model, **own).attribute(inputs, target, **call)

    def _compute(self, call: AttributionCall) -> Computed:
        nodes, weights = nodes_and_weights(self.method, self.n_steps)
        steps = [
            PathStep(call.baselines, torch.tensor(alpha, dtype=torch.float64), float(weight))
            for alpha, weight in zip(nodes, weights, strict=True)
        ]
        rows = rows_at_once(call, self.n_steps, self.internal_batch_size)
        outputs = run(call.model, call.arguments, call.arguments.features) if call.wants_outputs else None
        return Computed(integrate(self, call, steps, rows), outputs)

    def _read_baselines(self, baselines: Any, arguments: Call) -> tuple[Tensor, ...]:
        return arguments.fill(baselines, "baselines")


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
    shift = {"riemann_left": 0.0, "riemann_middle": 0.5, "riemann_right": 1.0}[rule]
    return (np.arange(n) + shift) / n, np.full(n, 1 / n)


def check_rows(internal_batch_size: int | None) -> None:
    """A chunk holds at least one row."""
    if internal_batch_size is not None:
        check_count("internal_batch_size", internal_batch_size)


def check_count(name: str, value: object) -> None:
    """A number of steps, draws or rows is whole and at least one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ConfigurationError(f"{name}={value!r}: expected a whole number of at least 1.")
