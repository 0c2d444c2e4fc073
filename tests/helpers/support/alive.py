"""Is a converted model still one that can be copied, saved and trained?"""

import copy

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves


def lives(model: nn.Module, x: Tensor) -> bool:
    """A deep copy with the same state computes the same; train mode runs forward and backward, eval mode after it."""
    twin = copy.deepcopy(model)
    twin.load_state_dict(model.state_dict())
    with torch.no_grad():
        same = torch.allclose(twin(x), model(x))
    outputs = twin.train()(torch.cat([x, -x]))
    sum(output.square().mean() for output in tree_leaves(outputs)).backward()
    gradients = [p.grad for p in twin.parameters() if p.grad is not None]
    trains = any(bool(g.any()) for g in gradients) and all(bool(g.isfinite().all()) for g in gradients)
    with torch.no_grad():
        return same and trains and bool(torch.isfinite(twin.eval()(x)).all())
