"""X-Gradient: exact Integrated Gradients of a homogeneous model in one backward pass."""

from __future__ import annotations

import inspect
import sys
import time
import warnings
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from axiograd._calls import Call, LinearTarget, Model, logits, read_leaves, zeros_like
from axiograd._state import unwrap, unwrap_parallel
from axiograd._typing import Target
from axiograd.attribution._blame import blame
from axiograd.attribution._euler import Gap, InexactWarning, euler_gap, rounding
from axiograd.attribution._path_check import path_gap
from axiograd.attribution._proof import Memory, alike, held, signature
from axiograd.attribution.base import Attribution, AttributionCall, Computed
from axiograd.attribution.captum_calls import called_as_in_captum
from axiograd.attribution.layer import FromLayer, Layer
from axiograd.attribution.passes import Pass, adds_up, attribution_pass
from axiograd.attribution.results import Explanation
from axiograd.errors import BaselineError, ConfigurationError, NotHomogeneousError
from axiograd.homogeneity import Certificate
from axiograd.homogeneity.certification import prove
from axiograd.homogeneity.conversion.lift import Lifted, energy_share
from axiograd.homogeneity.tracing.surroundings import attributes_restored


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
        self._memory = Memory()
        self._read_outs: list[tuple[list[Any], ReadOut]] = []
        self._warned = False

    @property
    def certificate(self) -> Certificate | None:
        """The newest proof's; None before the first use, and where the degree was given."""
        return self._memory.entries[-1].proof.certificate if self._memory.entries else None

    @property
    def checked_seconds(self) -> float:
        """How long calls so far have looked along the path, besides attributing."""
        return self._memory.spent

    multiplies_by_inputs = True
    #: The axes of inputs along which a proof is for any size.
    _axes: tuple[int, ...] = (0,)
    # Integrated Gradients' order without its steps.
    attribute = called_as_in_captum("baselines", "target", "additional_forward_args", "return_convergence_delta")(
        inspect.unwrap(Attribution.attribute)
    )

    def _compute(self, call: AttributionCall) -> Computed:
        started = time.perf_counter()
        done = self._differentiate(call)
        attributions = self._attributions(call, done)
        if torch.compiler.is_compiling():
            return Computed(attributions, done.outputs)
        gap = None
        if not adds_up(attributions, done.scores):  # nearly always so, and then all that was summed is finite
            done.check_finite(call.arguments.features)
            gap = euler_gap(attributions, done.scores, call.model, _terms(call.target, done.outputs))
        if gap is not None and self.degree is None and not self._warned:
            # Something has changed behind the proof's back, or was never seen by it.
            call, known = self._admit(call, anew=True), call
            if call.degree != known.degree:
                attributions = self._attributions(call, done)
                gap = euler_gap(attributions, done.scores, call.model, _terms(call.target, done.outputs))
        self._memory.busy += time.perf_counter() - started
        if self._memory.due(together=_several_processes()) and (gap is None or not call.exact):
            self._check_path(call, _strongest(attributions, done.scores.dim() - 1))
        self._check_sums(gap, call)
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

    def _check_sums(self, gap: Gap | None, call: AttributionCall) -> None:
        """The certificate is about the batch as a whole: whether each sample's attributions add up is seen here."""
        if gap is None or (self._warned and not call.exact):
            return
        if self.degree is not None:
            why = _ON_TRUST.format(self.degree)
        elif not call.exact:
            why = _EPSILONS
        else:
            reason = blame(self, gap, call)
            if reason is None:
                return
            if gap.precision == torch.float32:
                raise NotHomogeneousError(f"X-Gradient is not exact here: {gap}; {reason}.")
            if self._warned:
                return
            why = f"{reason}. Or {gap.precision} rounds numbers that cancel; see whether the gap remains in float32"
        self._warn(f"X-Gradient is not exact here: {gap}; {why}.")

    def _check_path(self, call: AttributionCall, strongest: int) -> None:
        """Whether the gradient is along the whole path what it is at its end, for two samples of the batch."""
        started = time.perf_counter()
        # Below a threshold there is nothing to see: one that has much is looked at besides one that is drawn by turns.
        rows = tuple({strongest: None, self._memory.calls % call.arguments.batch: None})

        def guard() -> Any:
            return attribution_pass(call.model, call.arguments.features[0].device, create_graph=False, preserve=True)

        looked = replace(call, model=unwrap_parallel(call.model), arguments=call.arguments.prepared(create_graph=False))
        with torch.enable_grad(), attributes_restored(looked.model):
            off = path_gap(self, looked, rows, guard)
        self._memory.spent += time.perf_counter() - started
        if self._warned or not off > max(NOTICEABLE, 10 * rounding(call.arguments.features[0].dtype)):
            return
        if self.degree is None and call.exact:
            call = self._admit(call, anew=True)
        if self.degree is not None:
            why = _ON_TRUST.format(self.degree)
        elif call.exact:
            why = (
                "the gradient changes along the path from the baseline to the input, as it does where a threshold or "
                "a constant is compared with the input; axiograd.certify says what it sees, and IntegratedGradients "
                "needs no degree"
            )
        else:
            why = _EPSILONS
        self._warn(
            f"X-Gradient is not exact here: single attributions of sample {' or '.join(map(str, rows))} are off by up "
            f"to {off:.2%} of the largest one, though they may add up; {why}."
        )

    def _warn(self, text: str) -> None:
        self._warned = True
        # The first caller outside this package is who should read it.
        frame, level = sys._getframe(1), 2  # noqa: SLF001
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("axiograd."):
            frame, level = frame.f_back, level + 1
        warnings.warn(text, InexactWarning, stacklevel=level)

    def _admit(self, call: AttributionCall, *, anew: bool = False) -> AttributionCall:
        """Find the degree of what is attributed: the outputs, or what a callable target makes of them."""
        if self.degree is not None:
            call.degree = self.degree
            return call
        if anew:
            self._memory.forget()
            call = replace(call)
        certificate = self._certificate(call)
        if certificate.degree is None or not certificate.ok:
            function = self._function
            what = f", from the layer {function.title} on," if isinstance(function, FromLayer) else ""
            raise NotHomogeneousError(
                f"X-Gradient is exact only for homogeneous models, and this one{what} is not certified.\n"
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
        return call

    def _certificate(self, call: AttributionCall) -> Certificate:
        if callable(call.target) and not isinstance(call.target, LinearTarget):
            return self._proved(self._reading(call.target), call)
        certificate = self._proved(self._function, call)
        if not certificate.ok and len(certificate.degrees) > 1:
            # What stands in the way may be outputs beside the logits, which nobody asked about.
            certificate = self._proved(self._reading(logits), call)
        return certificate

    def _proved(self, model: Model, call: AttributionCall) -> Certificate:
        """The remembered certificate, or a new one."""
        key, shapes = signature(call.arguments)
        found = self._memory.find(model, key, shapes)
        if found is None:
            # What is attributed is what scales; complex tensors and tensors inside lists are constants.
            arguments = read_leaves(
                call.inputs,
                baseline=self.baseline,
                additional_forward_args=call.additional,
                wrt=call.arguments.slots,
            )
            proof = prove(model, arguments, axes=self._axes)
            if not proof.certificate.ok and len(self._axes) > 1:
                proof = prove(model, arguments)
            found = self._memory.keep(proof, model, key, shapes)
        return found.proof.certificate

    def _reading(self, readout: Any) -> ReadOut:
        """The same module for the same readout, or for one written anew from the same parts."""
        parts = held(readout)
        for known, module in self._read_outs:
            if module.readout is readout or alike(known, parts):
                return module
        module = ReadOut(unwrap_parallel(self._function), readout)
        self._read_outs = [*self._read_outs[-_READ_OUTS:], (parts, module)]
        return module

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


def _strongest(attributions: list[Tensor], dim: int) -> int:
    """The sample, counted along a dimension, whose attributions are largest."""
    sizes = [a.detach().abs().movedim(dim, 0).reshape(a.shape[dim], -1).sum(1) for a in attributions]
    return int(torch.stack(sizes).sum(0).argmax())


def _terms(target: Target, outputs: Any) -> Tensor | None:
    """Σ|terms| of a weighted sum of outputs, which may cancel."""
    if not isinstance(target, LinearTarget) or not target.weights.numel():
        return None
    flat = logits(outputs).detach().flatten(1)
    return (flat * target.weights.flatten(1).to(flat)).abs().sum(1)


def _several_processes() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


_ON_TRUST = (
    "degree={:g} was taken on trust; axiograd.verify measures it, axiograd.certify says what speaks against it, and "
    "IntegratedGradients needs no degree"
)
_EPSILONS = (
    "the certificate holds up to epsilons, which count for inputs as small as these; scale the inputs up, make the "
    "epsilons smaller, or use IntegratedGradients"
)
#: Warn where single attributions are off by more.
NOTICEABLE = 0.01
#: Callable targets whose modules are kept.
_READ_OUTS = 7


class ReadOut(nn.Module):
    """readout(model(...)), so that the certificate covers what is attributed."""

    def __init__(self, model: Model, readout: Any) -> None:
        super().__init__()
        self.model = model
        self.readout = readout

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.readout(self.model(*args, **kwargs))
