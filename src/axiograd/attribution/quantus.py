"""A plug for Quantus: any of our methods as its ``explain_func``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from axiograd.attribution.base import Attribution
from axiograd.errors import ConfigurationError

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

    def explain_func(model: nn.Module, inputs: Any, targets: Any, **kwargs: Any) -> NDArray[Any]:
        device = kwargs.pop("device", None) or _device(model)
        call = {name: kwargs.pop(name) for name in ("baselines", "additional_forward_args") if name in kwargs}
        attribution = method(model, **(settings | kwargs))
        if not isinstance(attribution, Attribution):
            raise ConfigurationError(
                f"{method!r} made a {type(attribution).__name__}: expected an attribution method, such as "
                "quantus_explain(axiograd.IntegratedGradients, n_steps=32)."
            )
        x = _like_the_model(torch.as_tensor(inputs).to(device), model, inputs)
        found = attribution.attribute(x, _target(targets, device), **call)
        # NumPy has no bfloat16.
        return found.to(torch.promote_types(found.dtype, torch.float32)).cpu().numpy()  # type: ignore[no-any-return]

    return explain_func


def _device(model: Any) -> torch.device:
    parameter = next(iter(model.parameters()), None) if isinstance(model, nn.Module) else None
    return parameter.device if parameter is not None else torch.device("cpu")


def _like_the_model(x: Tensor, model: Any, inputs: Any) -> Tensor:
    """NumPy's numbers are float64 unless told otherwise, and Quantus perturbs them so: they follow the model."""
    if isinstance(inputs, Tensor) or not isinstance(model, nn.Module):
        return x
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    return x.to(parameter.dtype) if parameter is not None else x


def _target(targets: Any, device: Any) -> Any:
    if targets is None or isinstance(targets, str | int) or callable(targets):
        return targets
    indices = torch.as_tensor(np.asarray(targets) if not isinstance(targets, Tensor) else targets)
    return indices.to(device, torch.long) if not indices.is_floating_point() else _whole(indices).to(device)


def _whole(targets: Tensor) -> Tensor:
    """Class indices that NumPy made floating-point; others stay as they are, for the method to refuse."""
    return targets.long() if bool((targets == targets.round()).all()) else targets
