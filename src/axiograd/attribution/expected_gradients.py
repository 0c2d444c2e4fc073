"""Expected Gradients (Erion et al., 2021)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from axiograd._calls import Call, Model, zeros_like
from axiograd.attribution._chunks import rows_at_once
from axiograd.attribution._path import PathMethod, PathStep, integrate
from axiograd.attribution.base import AttributionCall, Computed, private_generator
from axiograd.attribution.integrated_gradients import check_count, check_rows
from axiograd.attribution.layer import Layer
from axiograd.attribution.passes import run
from axiograd.attribution.references import References
from axiograd.errors import BaselineError


class ExpectedGradients(PathMethod):
    """EGᵢ = E[(xᵢ − rᵢ) · ∂F(r + α(x − r))/∂xᵢ] over references r and α ~ U(0, 1), by ``n_samples`` draws.

    References are drawn without replacement within a call. A ``generator`` makes the draws repeatable.
    With ``multiply_by_inputs=False`` the factor xᵢ − rᵢ is left out.

    >>> references = torch.zeros(3, 2)
    >>> method = ExpectedGradients(lambda x: x.sum(1), references, n_samples=2)
    >>> method.attribute(torch.tensor([[1.0, 2.0]]))
    tensor([[1., 2.]])
    """

    default_baseline: ClassVar[str] = "the drawn references"

    def __init__(
        self,
        model: Model,
        references: Any,
        n_samples: int = 1,
        *,
        generator: torch.Generator | None = None,
        internal_batch_size: int | None = None,
        multiply_by_inputs: bool = True,
        layer: Layer | None = None,
    ) -> None:
        super().__init__(model, layer=layer)
        check_count("n_samples", n_samples)
        check_rows(internal_batch_size)
        self.references = References.ensure(references)
        self.n_samples = n_samples
        self.generator = generator
        # Without a generator, a training step draws from the global random state, like dropout, and an extra look here.
        self._private = private_generator()
        self.internal_batch_size = internal_batch_size
        self.multiply_by_inputs = multiply_by_inputs

    def _compute(self, call: AttributionCall) -> Computed:
        generator = self.generator or (None if call.is_training_step else self._private)
        drawn = self._draw(call.arguments, generator)
        alphas = torch.rand(self.n_samples, call.arguments.batch, generator=generator, dtype=torch.float64)
        steps = [PathStep(r, alpha, 1 / self.n_samples) for r, alpha in zip(drawn, alphas.unbind(), strict=True)]
        rows = rows_at_once(call, self.n_samples, self.internal_batch_size)
        outputs = run(call.model, call.arguments, call.arguments.features) if call.wants_outputs else None
        return Computed(integrate(self, call, steps, rows), outputs, drawn)

    def _draw(self, arguments: Call, generator: torch.Generator | None) -> list[tuple[Tensor, ...]]:
        features, batch = arguments.features, arguments.batch
        drawn = self.references.draw(batch * self.n_samples, len(features), generator)
        for x, r in zip(features, drawn, strict=True):
            if r.shape[1:] != x.shape[1:]:
                raise BaselineError(
                    f"references of shape {tuple(r.shape[1:])} for samples of shape {tuple(x.shape[1:])}."
                )
        per_input = [r.to(x).split(batch) for x, r in zip(features, drawn, strict=True)]
        return list(zip(*per_input, strict=True))

    def _read_baselines(self, baselines: Any, arguments: Call) -> tuple[Tensor, ...]:
        if baselines is not None:
            raise BaselineError("ExpectedGradients draws its baselines from references=...; baselines= is not used.")
        return zeros_like(arguments.features)
