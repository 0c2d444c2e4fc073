"""X-Gradient: exact Integrated Gradients of a homogeneous model in one backward pass."""

from __future__ import annotations

import inspect
import sys
import warnings
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from axiograd._calls import Call, LinearTarget, Model, logits, zeros_like
from axiograd._state import describe_mode, unwrap
from axiograd._typing import Target
from axiograd.attribution._euler import Gap, InexactWarning, euler_gap
from axiograd.attribution.base import Attribution, AttributionCall, Computed
from axiograd.attribution.captum_calls import called_as_in_captum
from axiograd.attribution.layer import FromLayer, Layer
from axiograd.attribution.passes import Pass, adds_up
from axiograd.attribution.results import Explanation
from axiograd.errors import BaselineError, ConfigurationError, NotHomogeneousError
from axiograd.homogeneity import Certificate
from axiograd.homogeneity.conversion.lift import Lifted, energy_share
from axiograd.homogeneity.remembered import certified, forget


class XGradient(Attribution):
    """XGᵢ(F, x) = (1/k) · xᵢ · ∂F/∂xᵢ, equal to Integrated Gradients against zero if F(αx) = αᵏF(x), k ≥ 1.

    The model is certified on first use (`axiograd.certify`) and refused if it is not homogeneous; ``degree=k``
    skips the proof. Each sample's attributions must add up to its score (Euler: x·∇F = kF). With ``baseline=b``,
    F is taken as a homogeneous function of x − b, and (1/k) · (xᵢ − bᵢ) · ∂F/∂xᵢ is Integrated Gradients against b.

    >>> import torch
    >>> from torch.nn import Linear, ReLU, Sequential
    >>> model = Sequential(Linear(2, 3, bias=False), ReLU(), Linear(3, 1, bias=False))
    >>> x = torch.randn(4, 2)
    >>> attributions = XGradient(model).attribute(x)
    >>> torch.allclose(attributions.sum(1), model(x).squeeze(1), atol=1e-6)
    True
    """

    def __init__(
        self, model: Model, *, degree: float | None = None, baseline: Any = None, layer: Layer | None = None
    ) -> None:
        super().__init__(model, layer=layer)
        if degree is not None and not degree >= 1:
            raise ConfigurationError(
                f"degree={degree}: X-Gradient needs a degree of at least 1; below it Integrated Gradients has no "
                "such closed form."
            )
        self.degree = degree
        # At a layer, the model's own inputs stand beside what scales.
        several = layer is not None and isinstance(baseline, tuple | list)
        self.baseline = dict(enumerate(baseline)) if several else baseline
        #: The newest proof's; None before the first use, and where the degree was given.
        self.certificate: Certificate | None = None
        self._warned = False

    multiplies_by_inputs = True
    #: The axes of inputs along which a proof is for any size.
    _axes: tuple[int, ...] = (0,)
    # Integrated Gradients' order without its steps.
    attribute = called_as_in_captum("baselines", "target", "additional_forward_args", "return_convergence_delta")(
        inspect.unwrap(Attribution.attribute)
    )

    def _compute(self, call: AttributionCall) -> Computed:
        done = self._differentiate(call)
        attributions = self._attributions(call, done)
        # Nearly always they add up, and then all that was summed is finite.
        if not torch.compiler.is_compiling() and not adds_up(attributions, done.scores):
            done.check_finite(call.arguments.features)
            gap = euler_gap(attributions, done.scores, call.model, _terms(call.target, done.outputs))
            if gap is not None:
                attributions = self._explain_gap(gap, call, done, attributions)
        return Computed(attributions, done.outputs)

    def _explained(self, call: AttributionCall, target: Target, baselines: Any = None) -> Explanation:
        explanation = super()._explained(call, target, baselines)
        lifted = self._lifted
        if lifted is None or not (target is None or isinstance(target, int | Tensor)):
            return explanation
        inputs, further = call.inputs, call.additional
        return replace(
            explanation, energy_of=lambda: energy_share(lifted, inputs, target, additional_forward_args=further)
        )

    @cached_property
    def _lifted(self) -> Lifted | None:
        """The model if it is a lifted one, also inside a wrapper."""
        model = unwrap(self._function)
        return model if isinstance(model, Lifted) else None

    def _attributions(self, call: AttributionCall, done: Pass) -> list[Tensor]:
        k, x = call.degree, call.arguments.features
        if self.baseline is not None:
            x = tuple(xi - b for xi, b in zip(x, call.baselines, strict=True))
        products = [self._combine(xi, g) for xi, g in zip(x, done.gradients, strict=True)]
        return products if k == 1 else [product / k for product in products]

    def _combine(self, x: Tensor, gradient: Tensor) -> Tensor:
        return x * gradient

    def _explain_gap(self, gap: Gap, call: AttributionCall, done: Pass, attributions: list[Tensor]) -> list[Tensor]:
        """Attributions do not add up to the score: prove anew, and warn or raise unless the degree has changed."""
        if self.degree is None:
            forget(self._function)
            before = call.degree
            call = self._admit(call)
            if call.degree != before:
                attributions = self._attributions(call, done)
                again = euler_gap(attributions, done.scores, call.model, _terms(call.target, done.outputs))
                if again is None:
                    return attributions
                gap = again
        if self.degree is None and call.exact and gap.precision == torch.float32:
            raise NotHomogeneousError(f"X-Gradient is not exact here: {gap}; {_CERTIFIED.format(gap.precision)}.")
        why = _CERTIFIED.format(gap.precision) if call.exact else _EPSILONS
        if self.degree is not None:
            why = _ON_TRUST.format(self.degree)
        self._warn(f"X-Gradient is not exact here: {gap}; {why}.")
        return attributions

    def _warn(self, text: str) -> None:
        """Once per object."""
        if self._warned:
            return
        self._warned = True
        # The first caller outside this package is who should read it.
        frame, level = sys._getframe(1), 2  # noqa: SLF001
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("axiograd."):
            frame, level = frame.f_back, level + 1
        warnings.warn(text, InexactWarning, stacklevel=level)

    def _admit(self, call: AttributionCall) -> AttributionCall:
        """Find the degree of what is attributed: the outputs, or what a callable target makes of them."""
        if self.degree is not None:
            call.degree = self.degree
            return call
        certificate = self.certificate = self._certified(call)
        if certificate.degree is None or not certificate.ok:
            function = self._function
            what = f", from the layer {function.title} on," if isinstance(function, FromLayer) else ""
            training = describe_mode(unwrap(self.model)) in {"train", "mixed"}
            mode = "The model is in training mode: call eval() first to explain its predictions.\n" if training else ""
            raise NotHomogeneousError(
                f"{mode}X-Gradient is exact only for homogeneous models, and this one{what} is not certified.\n"
                f"{certificate}\n"
                "Convert it with axiograd.to_xdnn(model, example_inputs), or use InputXGradient or IntegratedGradients."
            )
        if certificate.trained_degree and call.create_graph:
            raise NotHomogeneousError(
                f"the degree {certificate.degree:g} depends on the trainable {', '.join(certificate.trained_degree)}, "
                "and X-Gradient does not differentiate 1/k: freeze it (requires_grad_(False)), or train with "
                "IntegratedGradients."
            )
        call.degree, call.exact = certificate.degree, certificate.exact
        if certificate.error is not None and certificate.error > NOTICEABLE:
            self._warn(
                f"X-Gradient is not exact here: on the inputs of its proof, single attributions were off by up to "
                f"{certificate.error:.2%} of the largest one, though they may add up; {_EPSILONS}."
            )
        return call

    def _certified(self, call: AttributionCall) -> Certificate:
        proved = partial(certified, self._function, call.arguments, baseline=self.baseline, axes=self._axes)
        if callable(call.target) and not isinstance(call.target, LinearTarget):
            return proved(readout=call.target)
        certificate = proved()
        if not certificate.ok and len(certificate.degrees) > 1:
            # What stands in the way may be outputs beside the logits, which nobody asked about.
            certificate = proved(readout=logits)
        return certificate

    def _read_baselines(self, baselines: Any, arguments: Call) -> tuple[Tensor, ...]:
        if self.baseline is None and baselines is None:
            return zeros_like(arguments.features)
        own = arguments.fill(self.baseline, "baseline")
        given = own if baselines is None else arguments.fill(baselines, "baselines")
        for b, g in zip(own, given, strict=True):
            if not bool((b == g).all()):
                raise BaselineError(
                    "XGradient is exact for one baseline only: zero, or the one that the model is certified for. "
                    "Construct it as XGradient(model, baseline=b) for a model that is homogeneous in x - b, or use "
                    "IntegratedGradients, which takes any baseline."
                )
        return own

    def _baseline_name(self, baselines: Any) -> str:  # noqa: ARG002  # equal to its own, or refused above
        return "zero" if self.baseline is None else "given"


def _terms(target: Target, outputs: Any) -> Tensor | None:
    """Σ|terms| of a weighted sum of outputs, which may cancel."""
    if not isinstance(target, LinearTarget) or not target.weights.numel():
        return None
    flat = logits(outputs).detach().flatten(1)
    return (flat * target.weights.flatten(1).to(flat)).abs().sum(1)


_ON_TRUST = (
    "degree={:g} was taken on trust; axiograd.verify measures it, axiograd.certify says what speaks against it, and "
    "IntegratedGradients needs no degree"
)
_CERTIFIED = (
    "the model is certified, so rows of the batch interact (attribute in batches of one; if nodes are rows, give the "
    "graph as one sample), or its gradient is not that of the program that was traced (hooks, numbers that cancel and "
    "are rounded to {}). IntegratedGradients needs no degree"
)
_EPSILONS = (
    "the certificate holds up to epsilons, which count for inputs as small as these; scale the inputs up, make the "
    "epsilons smaller, or use IntegratedGradients"
)
#: Warn where single attributions are off by more.
NOTICEABLE = 0.01
