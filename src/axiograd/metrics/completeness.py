"""Whether attributions add up to the change of the output."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from axiograd._calls import Model, read_call, select
from axiograd._typing import Attributions, Inputs, Target
from axiograd.attribution import Completeness
from axiograd.errors import InputError, TargetError
from axiograd.metrics._evaluation import evaluating


def completeness_gap(
    model: Model,
    inputs: Inputs,
    attributions: Attributions,
    target: Target = None,
    *,
    baselines: Any = None,
    additional_forward_args: Any = None,
) -> Completeness:
    """Σᵢ Aᵢ − (F(x) − F(x′)) per sample, and relative to the root mean square of F(x) − F(x′).

    Works on any attributions, wherever they come from; the baseline is zero unless given.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> gap = completeness_gap(lambda x: (x**2).sum(1), x, x * 2 * x)  # Input×Gradient of a square: twice too much
    >>> gap.delta
    tensor([ 5., 25.])
    """
    arguments = read_call(inputs, additional_forward_args)
    given = attributions.values() if isinstance(attributions, dict) else attributions
    parts = [given] if isinstance(given, Tensor) else list(filter(torch.is_tensor, given))
    shapes = [tuple(a.shape) for a in parts]
    if shapes != [tuple(x.shape) for x in arguments.features]:
        raise InputError(
            f"attributions of shapes {shapes} for inputs of shapes {[tuple(x.shape) for x in arguments.features]}: "
            "expected the inputs' own shapes."
        )
    if isinstance(target, str):
        raise TargetError(f"target={target!r}: completeness is about one scalar per sample.")
    reference = arguments.fill(baselines, "baselines")
    with evaluating(model):
        at_input, at_baseline = (
            select(arguments.call(model, features), target, arguments.batch)
            for features in (arguments.features, reference)
        )
    difference = at_input - at_baseline
    delta = torch.stack([a.detach().flatten(1).sum(1) for a in parts]).sum(0) - difference
    return Completeness.of(delta, difference, "zero" if baselines is None else "given")
