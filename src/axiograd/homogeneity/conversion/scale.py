"""The one ingredient of lifts and counterparts: ρ(x) = RMS(x)/r per sample, and a division by it, safe at zero."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def sample_rms(x: Tensor, batch_dim: int | None = 0) -> Tensor:
    """Root mean square of every sample, degree 1 in x, with its dimensions kept; its derivatives at zero are zero.

    >>> sample_rms(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[3.5355],
            [0.0000]])
    """
    dims = [d for d in range(x.dim()) if batch_dim is None or d != batch_dim]
    if not dims:
        return x.abs()
    wide = _wide(x).square()
    return root(wide.mean(dims, keepdim=True))


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in {torch.float16, torch.bfloat16} else x


def root(square: Tensor) -> Tensor:
    """√s whose derivatives of every order are finite at zero, where they are zero."""
    positive = square > 0
    return torch.where(positive, torch.where(positive, square, math.inf).sqrt(), 0.0)


def infinite_at_zero(divisor: Tensor) -> Tensor:
    """A divisor by which 0 becomes 0, and of the same degree: infinity, like zero, is a constant of every degree.

    >>> infinite_at_zero(torch.tensor([4.0, 0.0]))
    tensor([4., inf])
    """
    return torch.where(divisor == 0, math.inf, divisor)


def unscaled(x: Tensor, rho: Tensor) -> Tensor:
    """x/ρ, and 0 where ρ = 0, with finite gradients.

    >>> unscaled(torch.tensor([[2.0], [0.0]]), torch.tensor([[4.0], [0.0]]))
    tensor([[0.5000],
            [0.0000]])
    """
    return x / infinite_at_zero(rho).to(x.dtype)


def joint_rms(tensors: Sequence[Tensor]) -> Tensor:
    """RMS per sample over several tensors together, shaped [batch]; over everything, shaped [], if they share no batch.

    >>> joint_rms([torch.tensor([[3.0]]), torch.tensor([[4.0]])])
    tensor([3.5355])
    """
    batched = all(t.dim() for t in tensors) and all(t.shape[0] == tensors[0].shape[0] for t in tensors[1:])
    flat = [_wide(t).reshape(t.shape[0] if batched else 1, -1) for t in tensors]
    total = sum((x.square().sum(1) for x in flat[1:]), start=flat[0].square().sum(1))
    rms = root(total / sum(x.shape[1] for x in flat))
    return rms if batched else rms.reshape(())


def along(rho: Tensor, x: Tensor) -> Tensor:
    """A factor per sample, reshaped to multiply x along its first dimension.

    >>> along(torch.ones(2), torch.ones(2, 3, 4)).shape
    torch.Size([2, 1, 1])
    """
    if rho.dim() == 0:
        return rho.to(x.dtype)
    return rho.reshape([rho.shape[0]] + [1] * (x.dim() - 1)).to(x.dtype)


def whole_rms(x: Tensor) -> Tensor:
    """RMS over all entries, in at least single precision: what a radius is calibrated to."""
    wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    return wide.square().mean().sqrt()
