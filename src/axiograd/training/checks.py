"""What a loss with a prior is made of, and that it trains something: seen once, before it goes wrong in silence."""

from typing import Any

import torch
from torch import Tensor

from axiograd import priors
from axiograd._state import module_of
from axiograd.attribution import Attribution
from axiograd.errors import ConfigurationError, DisconnectedError


def check_parts(task_loss: Any, prior: Any, method: Any) -> None:
    """Raise for a class where an object is meant, and for names."""
    for what, value in (("task_loss", task_loss), ("prior", prior)):
        if isinstance(value, type):
            raise ConfigurationError(f"{what} is the class {value.__name__}; pass an instance, {value.__name__}(...).")
    if isinstance(prior, str):
        known = [name for name, one in vars(priors).items() if isinstance(one, type) and issubclass(one, priors.Prior)]
        near = [name for name in known if name.lower() == prior.lower().replace("_", "")] or ["L1"]
        raise ConfigurationError(
            f"prior must be a Prior object such as axiograd.priors.{near[0]}(), got the string {prior!r}. "
            f"There are {', '.join(sorted(known))}."
        )
    for what, value, example in (
        ("task_loss", task_loss, "torch.nn.functional.cross_entropy"),
        ("prior", prior, "axiograd.priors.L1()"),
        ("method", method, "axiograd.XGradient"),
    ):
        if not callable(value) and not isinstance(value, Attribution):
            raise ConfigurationError(f"{what} is {value!r}, which cannot be called; pass for example {example}.")


def check_connected(prior: Tensor, model: Any) -> None:
    """Raise unless some parameter has a gradient from the prior: else training would silently ignore it."""
    module = module_of(model)
    parameters = [] if module is None else [p for p in module.parameters() if p.requires_grad]
    if module is not None and not parameters:
        raise DisconnectedError("the model has no parameter that requires a gradient; unfreeze what should be trained.")
    if not prior.requires_grad:
        raise DisconnectedError(
            "the prior has no gradient: the attributions are detached, by the method, by the model or by the prior."
        )
    if module is None:  # a function keeps its parameters to itself
        return
    try:
        gradients = torch.autograd.grad(prior, parameters, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        raise DisconnectedError(f"the prior cannot be differentiated by the parameters: {error}") from error
    if all(gradient is None for gradient in gradients):
        raise DisconnectedError(
            f"the prior's gradient reaches none of the {len(parameters)} trainable parameters, so it trains nothing: "
            "the attributions have a graph that stops before the model (Captum's do); use a method of axiograd."
        )
