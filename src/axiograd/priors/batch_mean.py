"""The mean over all samples of a step, those of the other ranks included, differentiably."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

#: How much a mean over samples, and a prior on the batch mean, count of what is computed now.
_WEIGHTS: ContextVar[tuple[float, float]] = ContextVar("weights", default=(1.0, 1.0))


@contextmanager
def weighing(samples: float, batch: float) -> Iterator[None]:
    """Priors inside are one share of a batch: means over samples are multiplied by one weight, others by another.

    With `samples` = 0 the share is a stand-in, which no mean over the batch counts.

    >>> from axiograd.priors import L1
    >>> with weighing(0.5, 1.0):
    ...     L1()(torch.ones(1, 4))
    tensor(2.)
    """
    before = _WEIGHTS.set((samples, batch))
    try:
        yield
    finally:
        _WEIGHTS.reset(before)


def share_weights() -> tuple[float, float]:
    """What `weighing` set.

    >>> share_weights()
    (1.0, 1.0)
    """
    return _WEIGHTS.get()


def weight_of(*, per_sample: bool) -> float:
    """The weight of a prior that is a mean over samples, or one on the batch mean.

    >>> weight_of(per_sample=True)
    1.0
    """
    samples, batch = _WEIGHTS.get()
    return samples if per_sample else batch


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
        if weight_of(per_sample=True) == 0:
            total, count = total * 0, count * 0
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
