"""The one ingredient of every conversion: ρ(x) = RMS(x)/r per sample, and which arguments of a model it is about."""

import inspect
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from axiograd.errors import InputError

# ----------------------------------------------------------------------------------------------------------- arguments

#: An argument of the model: its name, or its position where the signature has no name for it.
Slot: TypeAlias = int | str
#: The argument that says which tokens count (True or nonzero), or a function of the call that returns it.
Mask: TypeAlias = str | int | Callable[..., Tensor]

#: Masks that are found by themselves: Hugging Face's keep what is nonzero, PyTorch's drop what is True (or −∞).
_KEEPING = ("attention_mask", "decoder_attention_mask")
_DROPPING = ("key_padding_mask", "src_key_padding_mask", "tgt_key_padding_mask")


@dataclass(frozen=True)
class Roles:
    """The roles of a model's arguments, by name where the signature has one and by position elsewhere."""

    #: Names of the positional parameters of forward.
    names: tuple[str, ...] = ()
    #: Arguments that do not scale.
    constants: frozenset[Slot] = frozenset()
    mask: Mask | None = None

    @classmethod
    def of(cls, model: nn.Module, constants: Iterable[Slot] = (), mask: Mask | None = None) -> "Roles":
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = inspect.signature(model.forward).parameters.values()
        names = tuple(p.name for p in parameters if p.kind in kinds)
        slot = cls(names).slot
        if isinstance(mask, str | int):
            mask = slot(mask)
            constants = {*constants, mask}
        return cls(names, frozenset(map(slot, constants)), mask)

    def slot(self, given: Slot) -> Slot:
        """The name of a position, if it has one."""
        return self.names[given] if isinstance(given, int) and 0 <= given < len(self.names) else given

    def by_slot(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[Slot, Any]:
        return {self.slot(i): value for i, value in enumerate(args)} | dict(kwargs)

    def scales(self, slot: Slot) -> bool:
        return slot not in {*self.constants, *_KEEPING, *_DROPPING}

    def may_mask(self) -> bool:
        return self.mask is not None or any(name in self.names for name in (*_KEEPING, *_DROPPING))

    def masks(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
        """The masks of a call, as booleans shaped [batch, tokens] that are True for what counts."""
        if callable(self.mask):
            return [_to_boolean(self.mask(*args, **kwargs), dropping=False)]
        keeping, dropping = (_KEEPING, _DROPPING) if self.mask is None else ((self.mask,), ())
        return [
            _to_boolean(value, dropping=slot in dropping)
            for slot, value in self.by_slot(args, kwargs).items()
            if slot in (*keeping, *dropping) and isinstance(value, Tensor) and value.dim() > 1
        ]


def _to_boolean(mask: Any, *, dropping: bool) -> Tensor:
    """True for what counts; of a mask over pairs of tokens, what any token may look at."""
    if not isinstance(mask, Tensor) or mask.dim() < 2:  # noqa: PLR2004
        shape = f"tensor of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        raise InputError(f"the mask is a {shape}; it needs the dimensions [batch, tokens].")
    pairs = mask.dim() > 2  # noqa: PLR2004
    if mask.is_floating_point() and (dropping or pairs):
        kept: Tensor = mask > -1  # added to the logits: 0 keeps, a large negative number drops
    else:
        kept = mask == 0 if dropping else mask != 0
    return kept.flatten(1, -2).any(1) if pairs else kept


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
    """The mask that fits x, in a shape that broadcasts to x; x of fewer than 3 dimensions has no tokens."""
    if batch_dim is None or x.dim() < 3:  # noqa: PLR2004  # batch, tokens, features
        return None
    for mask in _masks.kept:
        axes = [d % x.dim() for d in tokens or (1 - batch_dim,) if x.shape[d] == mask.shape[1]]
        if axes and (x.shape[batch_dim] == mask.shape[0] or mask.shape[0] == 1):
            kept = torch.ones((), dtype=torch.bool, device=x.device)
            for axis in axes:
                shape = [1] * x.dim()
                shape[batch_dim], shape[axis] = mask.shape
                kept = kept & (mask if batch_dim < axis else mask.t()).reshape(shape).to(x.device)
            return kept
    return None


# --------------------------------------------------------------------------------------------------------------- scale


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
    kept = _token_mask(x, batch_dim, tokens)
    kept = entries if kept is None else kept if entries is None else kept & entries
    return _rms(x, dims, kept)


def joint_rms(tensors: Sequence[Tensor], masks: Sequence[Tensor | None] | None = None) -> Tensor:
    """RMS per sample over several tensors together, shaped [batch].

    A mask is True for what counts, and has the leading dimensions of its tensor.

    >>> joint_rms([torch.tensor([[3.0]]), torch.tensor([[4.0]])])
    tensor([3.5355])
    >>> joint_rms([torch.tensor([[3.0, 100.0]])], [torch.tensor([[True, False]])])
    tensor([3.])
    """
    rows, kept = [], []
    for x, mask in zip(tensors, masks or [None] * len(tensors), strict=True):
        counts = torch.ones((), dtype=torch.bool, device=x.device) if mask is None else mask
        counts = counts.reshape([*counts.shape] + [1] * (x.dim() - counts.dim())).expand(x.shape)
        rows.append(x.reshape(x.shape[0], -1))
        kept.append(counts.reshape(x.shape[0], -1))
    return _rms(torch.cat(rows, 1), [1], None if masks is None else torch.cat(kept, 1))[:, 0]


def _rms(x: Tensor, dims: list[int], kept: Tensor | None) -> Tensor:
    """In double precision, because the squares of 1e-24 and of 1e20 do not fit into float32."""
    wide = x.float() if x.device.type == "mps" else x.double()  # MPS has no doubles
    if kept is None:
        square = wide.square().mean(dims, keepdim=True)
    else:
        count = kept.expand(x.shape).sum(dims, keepdim=True).clamp_min(1)
        square = torch.where(kept, wide, 0.0).square().sum(dims, keepdim=True) / count
    return root(square).to(torch.promote_types(x.dtype, torch.float32))


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
