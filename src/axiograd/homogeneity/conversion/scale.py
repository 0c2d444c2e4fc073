"""The one ingredient of every conversion: ρ(x) = RMS(x)/r per sample, and a division by it that is safe at zero."""

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


class _Masks(threading.local):
    kept: tuple[Tensor, ...] = ()


_masks = _Masks()


@contextmanager
def without_padding(masks: Sequence[Tensor]) -> Iterator[None]:
    """Take means over the tokens that the masks keep: booleans shaped [batch, tokens], True for a token that counts."""
    before = _masks.kept
    _masks.kept = tuple(masks)
    try:
        yield
    finally:
        _masks.kept = before


def _token_mask(x: Tensor, batch_dim: int | None, tokens: Sequence[int] | None) -> Tensor | None:
    """The mask that fits x, in the shape of x; x of fewer than 3 dimensions has no tokens."""
    if batch_dim is None or x.dim() < 3:  # noqa: PLR2004  # batch, tokens, features
        return None
    for mask in _masks.kept:
        axes = [d % x.dim() for d in tokens or (1 - batch_dim,) if x.shape[d] == mask.shape[1]]
        if axes and (x.shape[batch_dim] == mask.shape[0] or mask.shape[0] == 1):
            found = []
            for axis in axes:
                shape = [1] * x.dim()
                shape[batch_dim], shape[axis] = mask.shape
                oriented = mask if batch_dim < axis else mask.t()
                found.append(oriented.reshape(shape).to(x.device).expand(x.shape))
            return found[0] if len(found) == 1 else torch.logical_and(*found)
    return None


def _mean_square(
    x: Tensor, dims: list[int], batch_dim: int | None, tokens: Sequence[int] | None, entries: Tensor | None
) -> Tensor:
    """Mean of x² in double precision, because the squares of 1e-24 and of 1e20 do not fit into float32."""
    wide = x.float() if x.device.type == "mps" else x.double()  # MPS has no doubles
    kept = _token_mask(x, batch_dim, tokens)
    kept = entries if kept is None else kept if entries is None else kept & entries
    if kept is None:
        return wide.square().mean(dims, keepdim=True)
    count = kept.sum(dims, keepdim=True).clamp_min(1)
    return torch.where(kept, wide, 0.0).square().sum(dims, keepdim=True) / count


def sample_rms(
    x: Tensor, batch_dim: int | None = 0, tokens: Sequence[int] | None = None, entries: Tensor | None = None
) -> Tensor:
    """Root mean square of every sample, degree 1 in x, with its dimensions kept; its derivatives at zero are zero.

    `tokens` are the dimensions along which padding may lie, by default the one beside the batch. `entries` is True for
    the entries that count.

    >>> sample_rms(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[3.5355],
            [0.0000]])
    """
    dims = [d for d in range(x.dim()) if d != batch_dim]
    if not dims:
        return x.abs()
    return root(_mean_square(x, dims, batch_dim, tokens, entries)).to(at_least_single(x))


def whole_rms(
    x: Tensor, batch_dim: int | None = 0, tokens: Sequence[int] | None = None, entries: Tensor | None = None
) -> Tensor:
    """Root mean square of all entries: what a radius r is calibrated to.

    >>> whole_rms(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor(2.5000)
    """
    x = x.detach()
    square = _mean_square(x, list(range(x.dim())), batch_dim, tokens, entries)
    return square.sqrt().reshape(()).to(at_least_single(x))


def joint_rms(tensors: Sequence[Tensor], masks: Sequence[Tensor | None] | None = None) -> Tensor:
    """RMS per sample over several tensors together, shaped [batch]; over everything, shaped [], if they share no batch.

    A mask is True for what counts, and has the leading dimensions of its tensor.

    >>> joint_rms([torch.tensor([[3.0]]), torch.tensor([[4.0]])])
    tensor([3.5355])
    >>> joint_rms([torch.tensor([[3.0, 100.0]])], [torch.tensor([[True, False]])])
    tensor([3.])
    """
    batched = all(t.dim() and t.shape[0] == tensors[0].shape[0] for t in tensors)
    rows = tensors[0].shape[0] if batched else 1
    totals, counts = [], []
    for x, mask in zip(tensors, masks or [None] * len(tensors), strict=True):
        wide = (x.float() if x.device.type == "mps" else x.double()).reshape(rows, -1)
        if mask is None:
            counts.append(torch.full((rows,), wide.shape[1], device=x.device))
        else:
            kept = mask.reshape([*mask.shape] + [1] * (x.dim() - mask.dim())).expand(x.shape).reshape(rows, -1)
            wide = torch.where(kept, wide, 0.0)
            counts.append(kept.sum(1))
        totals.append(wide.square().sum(1))
    rms = root(torch.stack(totals).sum(0) / torch.stack(counts).sum(0).clamp_min(1))
    return (rms if batched else rms.reshape(())).to(at_least_single(tensors[0]))


def at_least_single(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def root(square: Tensor) -> Tensor:
    """√s whose derivatives of every order are finite at zero, where they are zero."""
    positive = square > 0
    return torch.where(positive, torch.where(positive, square, math.inf).sqrt(), 0.0)


def infinite_at_zero(divisor: Tensor) -> Tensor:
    """A divisor by which 0 becomes 0, of the same degree: infinity, like zero, is a constant of every degree.

    >>> infinite_at_zero(torch.tensor([4.0, 0.0]))
    tensor([4., inf])
    """
    return torch.where(divisor == 0, math.inf, divisor)


def safe_divide(x: Tensor, rho: Tensor) -> Tensor:
    """x/ρ, and 0 where ρ = 0, with finite gradients.

    >>> safe_divide(torch.tensor([[2.0], [0.0]]), torch.tensor([[4.0], [0.0]]))
    tensor([[0.5000],
            [0.0000]])
    """
    return x / infinite_at_zero(rho).to(x.dtype)


def per_sample(factor: Tensor, x: Tensor) -> Tensor:
    """A factor per sample, reshaped to multiply x along its first dimension.

    >>> per_sample(torch.ones(2), torch.ones(2, 3, 4)).shape
    torch.Size([2, 1, 1])
    """
    if factor.dim() == 0:
        return factor.to(x.dtype)
    return factor.reshape([-1] + [1] * (x.dim() - 1)).to(x.dtype)
