"""Explanations as shap's, whose plots people know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from axiograd._calls import read_call, select
from axiograd._extras import optional
from axiograd.errors import InputError

if TYPE_CHECKING:
    from axiograd.attribution.results import Explanation


def to_shap(explanation: Explanation, names: Sequence[str] | None = None) -> Any:
    """Values, base values, data and names of an explanation of one tensor or DataFrame.

    base = score − Σ attributions, so that a waterfall ends at the score; for a method that adds up it is F(x′), the
    score at the baseline. With target "all", values are [samples, features, outputs].
    """
    if explanation.inputs is None:
        raise InputError(
            "the explanation does not contain its inputs, which shap's plots show: make it with explain(…)."
        )
    arguments = read_call(explanation.inputs)
    if len(arguments.features) != 1:
        raise InputError(f"shap explains one input, and the model has {len(arguments.features)}.")
    (data,), values = arguments.features, explanation.attributions
    if arguments.frame is not None:
        names = [str(name) for name in arguments.frame.columns] if names is None else names
        values = values if isinstance(values, Tensor) else torch.from_numpy(cast("Any", values).to_numpy(copy=True))
    found = next(each for each in pytree.tree_leaves(values) if isinstance(each, Tensor)).detach().double()
    score = select(explanation.outputs, explanation.target, arguments.batch).detach().double()
    if isinstance(explanation.target, str):  # "all" puts outputs first; shap has them last
        found = found.movedim(0, -1)
        base = score - found.sum(tuple(range(1, found.dim() - 1)))
    else:
        base = score - found.flatten(1).sum(1)
    return shap_explanation(found.cpu().numpy(), base.cpu().numpy(), data.detach().cpu().numpy(), names)


def shap_explanation(values: Any, base: Any, data: Any, names: Sequence[str] | None, display: Any = None) -> Any:
    """`shap.Explanation`; what to install where shap is missing."""
    return optional("shap", "shap", "to_shap()").Explanation(
        values, base, data, display_data=display, feature_names=None if names is None else list(names)
    )
