"""The mean over all samples of a step, those of the other ranks included, differentiably."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def batch_mean(values: Tensor, *, across_ranks: bool = True) -> tuple[Tensor, Tensor]:
    """ā = (1/N)·Σᵢ aᵢ over the N samples of all ranks, and N.

    Each rank's gradient comes out as (number of ranks)·∂Ω(ā)/∂(its own samples), so the mean over ranks
    that DDP and FSDP take is the gradient that one process has with all N samples, also when ranks have
    unequal batches.

    >>> import torch
    >>> batch_mean(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    (tensor([2., 4.]), tensor(2.))
    """
    total, count = values.sum(0), values.new_tensor(float(len(values)))
    if across_ranks and n_ranks() > 1:
        # One message for both: latency, not size, is what a small all-reduce costs.
        message = _all_reduce_sum(torch.cat([total.flatten(), count[None]]))
        total, count = message[:-1].reshape(total.shape), message[-1].detach()
    return total / count, count


def n_ranks() -> int:
    """How many processes train together.

    >>> n_ranks()
    1
    """
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _all_reduce_sum(tensor: Tensor) -> Tensor:
    total: Tensor = _AllReduceSum.apply(tensor)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return total


class _AllReduceSum(torch.autograd.Function):
    """Σ over ranks; its transpose is the sum over ranks too."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:  # noqa: ARG004 (autograd's signature)
        total = tensor.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return _all_reduce_sum(gradient.contiguous())
