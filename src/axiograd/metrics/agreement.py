"""How close the X-Gradient of a converted network is to Integrated Gradients of the original."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from axiograd._calls import class_scores, read_call
from axiograd._state import in_mode
from axiograd._typing import Attributions, Inputs
from axiograd.attribution import IntegratedGradients, XGradient
from axiograd.errors import ConfigurationError
from axiograd.homogeneity import Conversion

#: Rows of the original that go through it together: copies of examples along their paths.
_ROWS = 64


@dataclass(frozen=True, eq=False)
class Agreement:
    """Correlations over the features of each example: 1 is the same map up to its scale, 0 another one."""

    correlation: Tensor
    rank_correlation: Tensor

    def __str__(self) -> str:
        return f"correlation {_range(self.correlation)}, rank correlation {_range(self.rank_correlation)}"


def agreement(
    conversion: Conversion, examples: Inputs, *, n_steps: int = 128, additional_forward_args: object = None
) -> Agreement:
    """Correlation of X-Gradient of the converted network with Integrated Gradients of the original.

    Both are of the class that the original predicts, against zero or the lift's baseline. X-Gradient explains the
    converted network; this measures how well it also explains the original.

    >>> import axiograd
    >>> _ = torch.manual_seed(0)
    >>> net, x = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)), torch.randn(8, 4)
    >>> found = agreement(axiograd.to_xdnn(net, x, how="lift"), x)
    >>> found.correlation.shape, bool((found.correlation.abs() <= 1.0001).all())
    (torch.Size([8]), True)
    """
    if not isinstance(conversion, Conversion):
        raise ConfigurationError(f"agreement takes what to_xdnn returned, not a {type(conversion).__name__}.")
    call = read_call(examples, additional_forward_args)
    with in_mode(conversion.original, training=False), in_mode(conversion.model, training=False):
        with torch.no_grad():
            target = class_scores(call.call(conversion.original, call.features), call.batch).argmax(1)
        integrated = IntegratedGradients(conversion.original, n_steps, internal_batch_size=_ROWS)
        further, baseline = additional_forward_args, conversion.baseline
        wanted = integrated.attribute(examples, target, baselines=baseline, additional_forward_args=further)
        method = XGradient(conversion.model, baseline=baseline)
        ours = method.attribute(examples, target, additional_forward_args=further)
    a, b = (_rows(found, call.batch) for found in (ours, wanted))
    return Agreement(_correlation(a, b), _correlation(_ranks(a), _ranks(b)))


def _rows(attributions: Attributions, batch: int) -> Tensor:
    """All features of each example in a row."""
    parts = [leaf for leaf in tree_leaves(attributions) if isinstance(leaf, Tensor)]
    return torch.cat([part.detach().reshape(batch, -1).double() for part in parts], 1)


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    return torch.nn.functional.cosine_similarity(a, b, 1)


def _ranks(x: Tensor) -> Tensor:
    """The place of each value in its row; equal values share the mean of theirs.

    >>> _ranks(torch.tensor([[3.0, 1.0, 3.0]]))
    tensor([[1.5000, 0.0000, 1.5000]], dtype=torch.float64)
    """
    ordered = x.sort(1).values
    first, last = torch.searchsorted(ordered, x), torch.searchsorted(ordered, x, right=True)
    return (first + last - 1).double() / 2


def _range(values: Tensor) -> str:
    return f"{float(values.mean()):.2f} ({float(values.min()):.2f} to {float(values.max()):.2f})"
