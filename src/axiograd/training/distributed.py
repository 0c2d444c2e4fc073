"""What training with attributions asks of the wrappers that spread a model over processes."""

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from axiograd._state import modules_behind
from axiograd.errors import ConfigurationError
from axiograd.training.checkpoint import is_sharded


def refuse_what_loses_gradients(model: object) -> None:
    """Raise for wrappers that take the input gradient inside a step for the backward pass that they wait for.

    DDP with a static graph then skips its all-reduce, and a sharded model frees its weights: both without an error.

    >>> refuse_what_loses_gradients(nn.Linear(2, 2))
    """
    instead = "a prior needs the input's gradient inside the step: use DistributedDataParallel without static_graph."
    for root in modules_behind(model) if callable(model) else ():
        if is_sharded(root):
            raise ConfigurationError(f"the model is sharded, and would lose its weights' gradients; {instead}")
        for name, module in root.named_modules():
            if isinstance(module, DistributedDataParallel) and module.static_graph:
                where = f" ({name})" if name else ""
                raise ConfigurationError(
                    f"the model{where} is wrapped in DistributedDataParallel with static_graph=True, which would skip "
                    f"its all-reduce; {instead}"
                )


def searches_its_graph(model: object) -> str | None:
    """Why the model's wrapper needs the graph that autograd makes of a whole forward pass; None if it does not.

    >>> searches_its_graph(nn.Linear(2, 2))
    """
    modules = model.modules() if isinstance(model, nn.Module) else ()
    if any(isinstance(module, DistributedDataParallel) and module.find_unused_parameters for module in modules):
        return "DistributedDataParallel looks for unused parameters in the graph"
    return None
