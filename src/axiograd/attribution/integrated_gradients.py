"""Integrated Gradients (Sundararajan et al., 2017)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from axiograd._calls import Model
from axiograd._typing import Inputs, Target
from axiograd.attribution.base import AttributionCall, Computed, in_captums_order
from axiograd.attribution.layer import Layer
from axiograd.attribution.passes import run
from axiograd.attribution.paths import PathMethod, check_count
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
    captum_order = (
        "baselines",
        "target",
        "additional_forward_args",
        "n_steps",
        "method",
        "internal_batch_size",
        "return_convergence_delta",
    )

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
        super().__init__(model, internal_batch_size, multiply_by_inputs=multiply_by_inputs, layer=layer)
        if isinstance(n_steps, bool):
            raise ConfigurationError(
                f"n_steps={n_steps!r}: expected a whole number of at least 1. Name Captum's second argument: "
                f"IntegratedGradients(model, multiply_by_inputs={n_steps!r})."
            )
        check_count("n_steps", n_steps)
        nodes_and_weights(method, n_steps)
        self.n_steps = n_steps
        self.method = method

    @in_captums_order
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
            return super().attribute(inputs, target=target, **call)
        own: dict[str, Any] = {name: getattr(self, name) for name in given}
        own |= changed | {"multiply_by_inputs": self.multiply_by_inputs, "layer": self.layer}
        return type(self)(self.model, **own).attribute(inputs, target=target, **call)

    def _compute(self, call: AttributionCall) -> Computed:
        nodes, weights = map(torch.from_numpy, nodes_and_weights(self.method, self.n_steps))
        outputs = run(call.model, call.arguments, call.arguments.features) if call.wants_outputs else None
        return Computed(self._integrate(call, [b[None] for b in call.baselines], nodes[:, None], weights), outputs)


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
