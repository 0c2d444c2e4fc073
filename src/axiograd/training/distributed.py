"""What training with attributions asks of the wrappers that spread a model over processes."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from axiograd._state import all_modules, modules_behind
from axiograd.errors import ConfigurationError
from axiograd.training.checkpoint import is_sharded


def wants_plain_passes(model: object) -> str:
    """Why the model's wrapper must see ordinary forward and backward passes and nothing else; "" if it need not.

    A static graph takes the input gradient inside the step for the one backward pass that it counts on, and skips the
    all-reduce after it; a sharded model frees its weights, and reduces their gradients, by then.

    >>> wants_plain_passes(nn.Linear(2, 2))
    ''
    """
    modules = [(name, part) for root in _roots(model) for name, part in root.named_modules()]
    for name, module in modules:
        if isinstance(module, DistributedDataParallel) and module.static_graph:
            where = f" ({name})" if name else ""
            return f"the model{where} is wrapped in DistributedDataParallel with static_graph=True"
    return "the model is sharded by fully_shard" if any(is_sharded(root) for root in _roots(model)) else ""


def refuse_sharded(model: object) -> None:
    """Raise for FullyShardedDataParallel, which frees weights, and finishes, after the first backward pass.

    >>> refuse_sharded(nn.Linear(2, 2))
    """
    if not torch.distributed.is_available():
        return
    from torch.distributed.fsdp import FullyShardedDataParallel

    if any(isinstance(part, FullyShardedDataParallel) for part in (all_modules(model) if callable(model) else ())):
        raise ConfigurationError(
            "the model is sharded by FullyShardedDataParallel, which frees the parameters and reduces their gradients "
            "as soon as the input gradient inside the step is taken, so that those of the prior would be lost; use "
            "torch.distributed.fsdp.fully_shard, or DistributedDataParallel."
        )


def _roots(model: object) -> list[nn.Module]:
    return modules_behind(model) if callable(model) else []


def searches_its_graph(model: object) -> str | None:
    """Why the model's wrapper needs the graph that autograd makes of a whole forward pass; None if it does not.

    >>> searches_its_graph(nn.Linear(2, 2))
    """
    modules = model.modules() if isinstance(model, nn.Module) else ()
    if any(isinstance(module, DistributedDataParallel) and module.find_unused_parameters for module in modules):
        return "DistributedDataParallel looks for unused parameters in the graph"
    return None
