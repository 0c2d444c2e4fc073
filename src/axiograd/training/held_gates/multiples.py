"""Where what is attributed is a multiple of the task's own gradient, sample by sample."""

import torch
from torch import Tensor

from axiograd.training.targets import negligible

#: In units of the number format's own rounding: two gradients closer than this are multiples of each other.
ROUNDING = 64
#: Multiples smaller than this are not divided by.
_SMALL = 1e-6


def multiples(r: Tensor, rho: Tensor) -> Tensor | None:
    """m with r = m·ρ, a number for each sample; None if there is none, or it is too small to be divided by."""
    rows, base = r.reshape(len(r), -1).double(), rho.reshape(len(rho), -1).double()
    squares = base.square().sum(1)
    if not bool((squares > 0).all()):
        return None
    m = (rows * base).sum(1) / squares
    rest = (rows - m[:, None] * base).norm(dim=1)
    close = rest <= ROUNDING * torch.finfo(r.dtype).eps * rows.norm(dim=1)
    return m.to(r.dtype) if bool((close & (m.abs() > _SMALL)).all()) else None


def common(u: Tensor, r: Tensor) -> tuple[Tensor, Tensor, bool]:
    """ρ and s with u = s·ρ for every sample, and whether ρ = r.

    Where r is too small to be divided by, or u no multiple of it, ρ = u.
    """
    if r.numel() == len(r):
        return _common_of_one(u, r)
    flat_u, flat_r = u.flatten(1) if u.dim() > 1 else u[:, None], r.flatten(1) if r.dim() > 1 else r[:, None]
    largest = flat_r.abs().amax(1, keepdim=True)
    fits = largest >= negligible(r.dtype)
    unit = flat_r / torch.where(fits, largest, torch.ones_like(largest))
    s = (flat_u * unit).sum(1, keepdim=True) / unit.square().sum(1, keepdim=True).clamp(min=0.5)
    rest = (flat_u - s * unit).norm(dim=1, keepdim=True)
    fits &= rest <= ROUNDING * torch.finfo(r.dtype).eps * flat_u.norm(dim=1, keepdim=True)
    nothing = (flat_u == 0).all(1, keepdim=True) & (flat_r == 0).all(1, keepdim=True)
    rho = torch.where(fits, flat_r, flat_u).reshape(r.shape)
    scale = torch.where(fits, s / torch.where(fits, largest, torch.ones_like(largest)), torch.ones_like(s))
    return rho, scale[:, 0], bool((fits | nothing).all())


def _common_of_one(u: Tensor, r: Tensor) -> tuple[Tensor, Tensor, bool]:
    """The same for one output, of which everything is a multiple."""
    fits = r.abs() >= negligible(r.dtype)
    if bool(fits.all()):
        return r, (u / r).reshape(-1), True
    ones = torch.ones_like(r)
    nothing = (u == 0) & (r == 0)
    scale = torch.where(fits, u / torch.where(fits, r, ones), ones)
    return torch.where(fits, r, u), scale.reshape(-1), bool((fits | nothing).all())
