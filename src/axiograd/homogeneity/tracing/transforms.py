"""`torch.vmap`, `torch.func.grad` and the like, which the export does not follow: a program in which they are done.

Below them everything is an ordinary operator. What autograd keeps for a backward pass shows there as a detached value,
so that a cut of the user's own could not be told from it: with such a cut inside, nothing is followed.
"""

import traceback
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

_CUTS = {Tensor.detach, Tensor.detach_, Tensor.item, torch.detach, Tensor.data.__get__}  # type: ignore[attr-defined]


class CutInTransformError(RuntimeError):
    """The gradient is cut in a model that uses function transforms."""


def from_transform(error: BaseException) -> bool:
    """Whether an error of the export comes from a function transform."""
    frames = traceback.extract_tb(error.__traceback__)
    return "functorch" in str(error) or any("_functorch" in frame.filename for frame in frames)


class Applied(nn.Module):
    """The operators of a module on these arguments, with function transforms applied."""

    def __init__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        leaves, spec = pytree.tree_flatten((args, kwargs))

        def call(*leaves: Any) -> Any:
            args, kwargs = pytree.tree_unflatten(leaves, spec)
            with _NoCuts():
                return module(*args, **kwargs)

        self.program = make_fx(call, tracing_mode="fake", _allow_non_fake_inputs=True)(*leaves)
        for node in list(self.program.graph.nodes):
            if node.target is torch.ops.aten.detach.default:
                node.replace_all_uses_with(node.args[0])
                self.program.graph.erase_node(node)
        self.program.recompile()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.program(*pytree.tree_leaves((args, kwargs)))


class _NoCuts(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        detached = not torch.is_grad_enabled() and isinstance(result, Tensor) and result.is_floating_point()
        if func in _CUTS or detached:
            raise CutInTransformError("the gradient is cut inside or beside a torch.func transform.")
        return result
