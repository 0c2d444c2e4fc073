"""An adapter for Quantus: any of our methods as its ``explain_func``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from axiograd.attribution.base import Attribution

ExplainFunc: TypeAlias = Callable[..., NDArray[Any]]


def quantus_explain(method: Callable[..., Attribution], **settings: Any) -> ExplainFunc:
    """``explain_func(model, inputs, targets, **kwargs)`` from a method's class, or any function from model to method.

    The keywords that Quantus hands on (``explain_func_kwargs``) are settings of the method, except ``device``, to
    which the inputs go (by default to where the model is), and the arguments of ``attribute``.

    >>> from axiograd import InputXGradient
    >>> explain = quantus_explain(InputXGradient)
    >>> explain(nn.Identity(), np.array([[1.0, 2.0]]), np.array([1]))
    array([[0., 2.]])
    """

    def explain_func(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> NDArray[Any]:
        parameters = model.parameters() if isinstance(model, nn.Module) else ()
        like = next((p for p in parameters if p.is_floating_point()), None)
        device = kwargs.pop("device", None) or ("cpu" if like is None else like.device)
        call = {name: kwargs.pop(name) for name in ("baselines", "additional_forward_args") if name in kwargs}
        attribution = method(model, **(settings | kwargs))
        x = torch.as_tensor(inputs).to(device)
        if like is not None and not isinstance(inputs, Tensor):
            x = x.to(like.dtype)  # NumPy's numbers are float64 unless told otherwise, and Quantus perturbs them so
        found = attribution.attribute(x, _target(targets, device), **call)
        # NumPy has no bfloat16.
        return found.to(torch.promote_types(found.dtype, torch.float32)).cpu().numpy()  # type: ignore[no-any-return]

    return explain_func


def _target(targets: Any, device: Any) -> Any:
    if targets is None or isinstance(targets, str | int) or callable(targets):
        return targets
    indices = torch.as_tensor(np.asarray(targets) if not isinstance(targets, Tensor) else targets).to(device)
    # Class indices that NumPy made floating-point; others stay as they are, for the method to refuse.
    whole = not indices.is_floating_point() or bool((indices == indices.round()).all())
    return indices.long() if whole else indices
