"""What training with attributions asks of the wrappers that spread a model over processes."""

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from axiograd.errors import ConfigurationError
from axiograd.training.checkpoint import is_sharded


def refuse_static_graph(model: object) -> None:
    """Raise for a model wrapped with `static_graph=True`, whose gradients would stay unsynchronised without a word.

    The input gradient inside the step uses up the one backward pass that a static graph allows itself, and
    the all-reduce after it is skipped.

    >>> refuse_static_graph(nn.Linear(2, 2))
    """
    if not isinstance(model, nn.Module):
        return
    for name, module in model.named_modules():
        if isinstance(module, DistributedDataParallel) and module.static_graph:
            where = f" ({name})" if name else ""
            raise ConfigurationError(
                f"the model{where} is wrapped in DistributedDataParallel with static_graph=True, which skips the "
                "all-reduce of gradients when an attribution is part of the step; wrap it with static_graph=False "
                "(add find_unused_parameters=True if parameters go unused)."
            )


def refuse_sharded(model: object) -> None:
    """Raise for a model whose parameters FSDP shards: it frees them, and finishes, after the first backward pass.

    >>> refuse_sharded(nn.Linear(2, 2))
    """
    if isinstance(model, nn.Module) and is_sharded(model):
        raise ConfigurationError(
            "the model is sharded (fully_shard or FullyShardedDataParallel), which frees the parameters and reduces "
            "their gradients as soon as the input gradient inside the step is taken, so that those of the prior would "
            "be lost; use DistributedDataParallel, or FSDP with a task loss alone."
        )


def searches_its_graph(model: object) -> str | None:
    """Why the model's wrapper needs the graph that autograd makes of a whole forward pass; None if it does not.

    >>> searches_its_graph(nn.Linear(2, 2))
    """
    modules = model.modules() if isinstance(model, nn.Module) else ()
    if any(isinstance(module, DistributedDataParallel) and module.find_unused_parameters for module in modules):
        return "DistributedDataParallel looks for unused parameters in the graph"
    return None
