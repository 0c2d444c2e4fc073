"""X-Gradient: exact Integrated Gradients of a homogeneous model in one backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from axiograd.attribution._arguments import Arguments, Model
from axiograd.attribution._gradient import differentiate
from axiograd.attribution._state import unwrapped
from axiograd.attribution._target import LinearTarget, logits
from axiograd.attribution.base import Attribution, Call, Computed
from axiograd.errors import BaselineError, ConfigurationError, NotHomogeneousError
from axiograd.homogeneity import certify


class XGradient(Attribution):
    """XGᵢ(F, x) = (1/k) · xᵢ · ∂F/∂xᵢ, equal to Integrated Gradients against zero if F(αx) = αᵏF(x), k ≥ 1.

    The model is certified on first use (`axiograd.certify`) and refused if it is not homogeneous; ``degree=k``
    skips the proof. With ``baseline=b``, F is taken as a homogeneous function of x − b, and
    (1/k) · (xᵢ − bᵢ) · ∂F/∂xᵢ is Integrated Gradients against b.

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

    def _compute(self, call: Call) -> Computed:
        done = differentiate(
            call.model,
            call.arguments,
            lambda outputs: self._score(outputs, call.target, call.arguments.batch),
            create_graph=call.create_graph,
        )
        k = self.degree or self._certified_degree(call, done.outputs)
        x = call.arguments.features
        if self.baseline is not None:
            x = tuple(xi - b for xi, b in zip(x, call.baselines, strict=True))
        attributions = [xi * g if k == 1 else xi * g / k for xi, g in zip(x, done.gradients, strict=True)]
        return Computed(attributions, done.outputs)

    def _certified_degree(self, call: Call, outputs: Any) -> float:
        """The degree of what is attributed: the outputs, or what a callable target makes of them."""
        model = unwrapped(self.model)
        linear = not callable(call.target) or isinstance(call.target, LinearTarget)
        if not (linear and isinstance(outputs, Tensor)):
            readout = logits if linear else call.target
            if self._read_out is None or self._read_out.readout is not readout:
                self._read_out = _ReadOut(model, readout)
            model = self._read_out
        inputs, extra = call.inputs, call.additional
        if isinstance(extra, Mapping):
            inputs, extra = ({**inputs, **extra}, None) if isinstance(inputs, Mapping) else (inputs, None)
            model = model if isinstance(call.inputs, Mapping) else _WithKeywords(model, call.additional)
        certificate = certify(
            model,
            inputs,
            baseline=self.baseline,
            additional_forward_args=tuple(extra) if isinstance(extra, list) else extra,
            # What is attributed is what scales: complex tensors and tensors inside lists are constants, too.
            wrt=call.arguments.slots,
        )
        if certificate.degree is None or not certificate.ok:
            raise NotHomogeneousError(
                f"X-Gradient is exact only for homogeneous models, and this one is not certified.\n{certificate}\n"
                "Convert it with axiograd.to_xdnn(model, example_inputs), or use InputXGradient or IntegratedGradients."
            )
        return certificate.degree

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


class _WithKeywords(nn.Module):
    """model(..., **keywords), for keyword arguments that stay as they are."""

    def __init__(self, model: Model, keywords: Mapping[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.keywords = dict(keywords)

    def forward(self, *args: Any) -> Any:
        return self.model(*args, **self.keywords)


class _ReadOut(nn.Module):
    """readout(model(...)), so that the certificate covers what is attributed."""

    def __init__(self, model: Model, readout: Any) -> None:
        super().__init__()
        self.model = model
        self.readout = readout

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.readout(self.model(*args, **kwargs))
