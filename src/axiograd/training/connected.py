"""What would train nothing without an error: a prior that reaches no parameter, and wrappers that lose gradients."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from axiograd._state import module_of, modules_behind
from axiograd.errors import ConfigurationError, DisconnectedError


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


def refuse_what_loses_gradients(model: object) -> None:
    """Raise for wrappers that take the input gradient inside a step for the backward pass that they wait for.

    DDP with a static graph then skips its all-reduce, and a sharded model frees its weights: both without an error.

    >>> refuse_what_loses_gradients(nn.Linear(2, 2))
    """
    instead = "a prior needs the input's gradient inside the step: use DistributedDataParallel without static_graph."
    for root in modules_behind(model) if callable(model) else ():
        for name, module in root.named_modules():
            where = f" ({name})" if name else ""
            if _is_sharded(module):
                raise ConfigurationError(
                    f"the model is sharded{where}, and would lose its weights' gradients; {instead}"
                )
            if isinstance(module, DistributedDataParallel) and module.static_graph:
                raise ConfigurationError(
                    f"the model{where} is wrapped in DistributedDataParallel with static_graph=True, which would skip "
                    f"its all-reduce; {instead}"
                )


def _is_sharded(module: nn.Module) -> bool:
    """Whether its parameters are cut into pieces that live on different ranks (FSDP)."""
    if not torch.distributed.is_available():
        return False
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    return isinstance(module, FSDPModule | FullyShardedDataParallel)


def searches_its_graph(model: object) -> bool:
    """Whether the model's wrapper needs the graph that autograd makes of a whole forward pass.

    >>> searches_its_graph(nn.Linear(2, 2))
    False
    """
    modules = model.modules() if isinstance(model, nn.Module) else ()
    return any(isinstance(module, DistributedDataParallel) and module.find_unused_parameters for module in modules)
