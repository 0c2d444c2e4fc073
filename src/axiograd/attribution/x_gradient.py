"""X-Gradient: exact Integrated Gradients of a homogeneous model in one backward pass."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from axiograd._target import LinearTarget, logits
from axiograd.attribution._arguments import Arguments, Model
from axiograd.attribution._euler import Gap, InexactWarning, euler_gap
from axiograd.attribution._state import unwrapped
from axiograd.attribution.base import Attribution, Call, Computed
from axiograd.errors import BaselineError, ConfigurationError, NotHomogeneousError
from axiograd.homogeneity import Certificate, certify
from axiograd.homogeneity.cache import frozen


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

    def __init__(self, model: Model, *, degree: float | None = None, baseline: Any = None) -> None:
        super().__init__(model)
        if degree is not None and not degree >= 1:
            raise ConfigurationError(
                f"degree={degree}: X-Gradient needs a degree of at least 1; below it Integrated Gradients has no "
                "such closed form."
            )
        self.degree = degree
        self.baseline = baseline
        self._read_out: _ReadOut | None = None
        self._warned = False

    def _compute(self, call: Call) -> Computed:
        done = self._differentiate(call)
        k, x = call.degree, call.arguments.features
        if self.baseline is not None:
            x = tuple(xi - b for xi, b in zip(x, call.baselines, strict=True))
        attributions = [xi * g if k == 1 else xi * g / k for xi, g in zip(x, done.gradients, strict=True)]
        if not torch.compiler.is_compiling():
            self._check(euler_gap(attributions, done.scores, call.model), call)
        return Computed(attributions, done.outputs)

    def _check(self, gap: Gap | None, call: Call) -> None:
        """The certificate is about the batch as a whole: whether each sample's attributions add up is seen here."""
        if gap is None or (self._warned and not call.exact):
            return
        if self.degree is not None:
            why = (
                f"degree={self.degree:g} was taken on trust; axiograd.verify measures it, axiograd.certify says what "
                "speaks against it, and IntegratedGradients needs no degree"
            )
        elif not call.exact:
            why = (
                "the certificate holds up to epsilons, which count for inputs as small as these; scale the inputs up, "
                "make the epsilons smaller, or use IntegratedGradients"
            )
        else:
            why = (
                "the model as a whole is certified, so most likely rows of the batch interact (a statistic over the "
                "batch, a graph whose nodes are rows) and are no samples; attribute in batches of one, or give what "
                "belongs together a batch dimension and one score: "
                "XGradient(lambda x: f(x[0]).sum().reshape(1)).attribute(x[None])"
            )
            if gap.precision == torch.float32:
                raise NotHomogeneousError(f"X-Gradient is not exact here: {gap}; {why}.")
            if self._warned:
                return
            why += f". Or numbers cancel that {gap.precision} rounds; see whether the gap remains in float32"
        self._warned = True
        warnings.warn(f"X-Gradient is not exact here: {gap}; {why}.", InexactWarning, stacklevel=4)

    def _admit(self, call: Call) -> Call:
        """Find the degree of what is attributed: the outputs, or what a callable target makes of them."""
        if self.degree is not None:
            return replace(call, degree=self.degree)
        model = unwrapped(self.model)
        if callable(call.target) and not isinstance(call.target, LinearTarget):
            certificate = self._certify(self._reading(model, call.target), call)
            return _admitted(call, certificate)
        certificate = self._certify(model, call)
        if not certificate.ok and len(certificate.degrees) > 1:
            # What stands in the way may be outputs beside the logits, which nobody asked about.
            certificate = self._certify(self._reading(model, logits), call)
        return _admitted(call, certificate)

    def _certify(self, model: Model, call: Call) -> Certificate:
        return certify(
            model,
            call.inputs,
            baseline=self.baseline,
            additional_forward_args=call.additional,
            # What is attributed is what scales; complex tensors and tensors inside lists are constants.
            wrt=call.arguments.slots,
        )

    def _reading(self, model: Model, readout: Any) -> nn.Module:
        """The same module for the same readout, or one written anew, so that its certificate is found again."""
        held = self._read_out
        if held is None or (held.readout is not readout and frozen(held.readout) != frozen(readout)):
            held = self._read_out = _ReadOut(model, readout)
        return held

    def _read_baselines(self, baselines: Any, arguments: Arguments) -> tuple[Tensor, ...]:
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


def _admitted(call: Call, certificate: Certificate) -> Call:
    if certificate.degree is None or not certificate.ok:
        raise NotHomogeneousError(
            f"X-Gradient is exact only for homogeneous models, and this one is not certified.\n{certificate}\n"
            "Convert it with axiograd.to_xdnn(model, example_inputs), or use InputXGradient or IntegratedGradients."
        )
    return replace(call, degree=certificate.degree, exact=certificate.exact)


class _ReadOut(nn.Module):
    """readout(model(...)), so that the certificate covers what is attributed."""

    def __init__(self, model: Model, readout: Any) -> None:
        super().__init__()
        self.model = model
        self.readout = readout

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.readout(self.model(*args, **kwargs))
