"""The gradient of log-probabilities, as in Right for the Right Reasons (Ross et al., 2017)."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from axiograd._calls import Model, logits, select
from axiograd._typing import Target
from axiograd.attribution.base import SinglePass
from axiograd.attribution.layer import Layer
from axiograd.errors import ConfigurationError


class LogGradient(SinglePass):
    """∂/∂xᵢ Σ_c log p_c(x); with a target, ∂/∂xᵢ log p_target(x) alone.

    ``link="softmax"`` reads the outputs as class logits; ``"sigmoid"`` reads each as the logit of an event, whose
    two log-probabilities log p and log(1 − p) are summed; ``"auto"`` means sigmoid for a single output.

    >>> model = lambda x: x @ torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> LogGradient(model).attribute(torch.zeros(1, 2))  # both classes equally likely: the sum is at its maximum
    tensor([[0., 0.]])
    >>> LogGradient(model).attribute(torch.zeros(1, 2), target=0)
    tensor([[ 0.5000, -0.5000]])
    """

    def __init__(
        self,
        model: Model,
        *,
        link: Literal["auto", "softmax", "sigmoid"] = "auto",
        layer: Layer | None = None,
    ) -> None:
        super().__init__(model, layer=layer)
        if link not in {"auto", "softmax", "sigmoid"}:
            raise ConfigurationError(f"link={link!r}: expected 'auto', 'softmax' or 'sigmoid'.")
        self.link = link

    def _score(self, outputs: Any, target: Target, batch: int) -> Tensor:
        raw = logits(outputs)
        flat = raw.reshape(batch, -1)
        if self.link == "sigmoid" or (self.link == "auto" and flat.shape[1] == 1):
            if target is None:
                return (F.logsigmoid(flat) + F.logsigmoid(-flat)).sum(1)
            return select(F.logsigmoid(raw), target, batch)
        log_p = torch.log_softmax(raw.reshape(batch, -1) if raw.dim() == 1 else raw, dim=1)
        return log_p.flatten(1).sum(1) if target is None else select(log_p, target, batch)

    def _combine(self, x: Tensor, gradient: Tensor) -> Tensor:  # noqa: ARG002
        return gradient
