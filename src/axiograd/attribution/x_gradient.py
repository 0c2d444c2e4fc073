"""X-Gradient: exact Integrated Gradients of a homogeneous model in one backward pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from axiograd._calls import Call, LinearTarget, Model, logits, zeros_like
from axiograd._state import describe_mode, unwrap
from axiograd.attribution.base import AttributionCall, Computed, SinglePass
from axiograd.attribution.layer import FromLayer, Layer
from axiograd.attribution.passes import Pass, check_finite
from axiograd.attribution.sums import adds_up, euler_gap, warn_inexact
from axiograd.errors import BaselineError, ConfigurationError, NotHomogeneousError
from axiograd.homogeneity import Certificate
from axiograd.homogeneity.conversion.lift import Lifted, energy_share
from axiograd.homogeneity.remembered import certified, forget

#: Warn where single attributions are off by more.
NOTICEABLE = 0.01


class XGradient(SinglePass):
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

    captum_order = ("baselines", "target", "additional_forward_args", "return_convergence_delta")
    multiplies_by_inputs = True
    #: The axes of inputs along which a proof is for any size.
    _axes: ClassVar[tuple[int, ...]] = (0,)

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
        self.baseline = baseline
        #: The newest proof's; None before the first use, and where the degree was given.
        self.certificate: Certificate | None = None
        self._warned = False

    def _combine(self, x: Tensor, gradient: Tensor) -> Tensor:
        return x * gradient

    def _compute(self, call: AttributionCall) -> Computed:
        x, k, done = call.arguments.features, call.degree, self._differentiate(call)
        if self.baseline is not None:
            x = tuple(xi - b for xi, b in zip(x, call.baselines, strict=True))
        products = [self._combine(xi, g) for xi, g in zip(x, done.gradients, strict=True)]
        attributions = products if k == 1 else [product / k for product in products]
        self._check_sums(call, done, attributions)
        return Computed(attributions, done.outputs)

    def _check_sums(self, call: AttributionCall, done: Pass, attributions: list[Tensor]) -> None:
        """Euler: Σᵢ XGᵢ = F(x) − F(b), up to rounding; most changes of a model after its proof show here."""
        # Nearly always they add up, and then all that was summed is finite.
        if torch.compiler.is_compiling() or adds_up(attributions, done.scores):
            return
        check_finite(call.arguments.features, done.scores, done.gradients)
        gap = euler_gap(attributions, done.scores, call.model, call.target, done.outputs)
        if gap is None:
            return
        if self.degree is not None:
            self._warn(f"{gap}; degree={self.degree:g} was given, not proved; {_GIVEN}")
            return
        forget(self._function)
        if call.exact and gap.precision == torch.float32:
            raise NotHomogeneousError(f"X-Gradient is not exact here: {gap}; {_CERTIFIED.format(gap.precision)}.")
        self._warn(f"{gap}; {_CERTIFIED.format(gap.precision) if call.exact else _EPSILONS}")

    def _warn(self, text: str) -> None:
        """Once per object."""
        if not self._warned:
            self._warned = True
            warn_inexact(f"X-Gradient is not exact here: {text}.")

    def _admit(self, call: AttributionCall) -> AttributionCall:
        """Find the degree of what is attributed: the outputs, or what a callable target makes of them."""
        if self.degree is not None:
            call.degree = self.degree
            return call
        certificate = self.certificate = self._certified(call)
        if certificate.degree is None or not certificate.ok:
            raise NotHomogeneousError(self._refusal(certificate))
        if certificate.trained_degree and call.create_graph:
            raise NotHomogeneousError(
                f"the degree {certificate.degree:g} depends on the trainable {', '.join(certificate.trained_degree)}, "
                "and X-Gradient does not differentiate 1/k: freeze it (requires_grad_(False)), or train with "
                "IntegratedGradients."
            )
        call.degree, call.exact = certificate.degree, certificate.exact
        if certificate.error is not None and certificate.error > NOTICEABLE:
            self._warn(
                "on the inputs of its proof, single attributions were off by up to "
                f"{certificate.error:.2%} of the largest one, though they may add up; {_EPSILONS}"
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

    def _refusal(self, certificate: Certificate) -> str:
        training = describe_mode(unwrap(self.model)) in {"train", "mixed"}
        mode = "The model is in training mode: call eval() first to explain its predictions.\n" if training else ""
        what = f", from the layer {self._function.title} on," if isinstance(self._function, FromLayer) else ""
        return (
            f"{mode}X-Gradient is exact only for homogeneous models, and this one{what} is not certified.\n"
            f"{certificate}\n"
            "Convert it with axiograd.to_xdnn(model, examples), or use InputXGradient or IntegratedGradients."
        )

    def _read_baselines(self, baselines: Any, arguments: Call) -> tuple[Tensor, ...]:
        if self.baseline is None and baselines is None:
            return zeros_like(arguments.features)
        own = arguments.fill(self.baseline, "baseline")
        given = own if baselines is None else arguments.fill(baselines, "baselines")
        if not all(bool((b == g).all()) for b, g in zip(own, given, strict=True)):
            raise BaselineError(
                "XGradient is exact for one baseline only: zero, or the one that the model is certified for. "
                "Construct it as XGradient(model, baseline=b) for a model that is homogeneous in x - b, or use "
                "IntegratedGradients, which takes any baseline."
            )
        return own

    def _baseline_name(self, baselines: Any) -> str:  # noqa: ARG002  # equal to its own, or refused above
        return "zero" if self.baseline is None else "given"

    def _energy(self, call: AttributionCall) -> Callable[[], Tensor] | None:
        lifted = unwrap(self._function)
        if not isinstance(lifted, Lifted) or not isinstance(call.target, int | Tensor | None):
            return None
        return partial(energy_share, lifted, call.inputs, call.target, additional_forward_args=call.additional)


_GIVEN = "axiograd.verify measures it, axiograd.certify lists what breaks it, and IntegratedGradients needs no degree"
_CERTIFIED = (
    "the model is certified, so rows of the batch interact (attribute in batches of one; if nodes are rows, give the "
    "graph as one sample), or its gradient is not that of the program that was traced (hooks, numbers that cancel and "
    "are rounded to {}). IntegratedGradients needs no degree"
)
_EPSILONS = (
    "the certificate holds up to epsilons, which matter for inputs as small as these; scale the inputs up, make the "
    "epsilons smaller, or use IntegratedGradients"
)
