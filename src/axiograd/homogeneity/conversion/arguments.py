"""What the arguments of a model are: which of them scale, which stay as they are, and which mask out padding."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from torch import Tensor, nn

from axiograd.errors import InputError

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
    #: Arguments without a batch dimension beside others that have one.
    shared: frozenset[Slot] = frozenset()
    mask: Mask | None = None

    @classmethod
    def of(cls, model: nn.Module, constants: Iterable[Slot] = (), mask: Mask | None = None) -> "Roles":
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = inspect.signature(model.forward).parameters.values()
        roles = cls(tuple(p.name for p in parameters if p.kind in kinds))
        if isinstance(mask, str | int):
            mask = roles.slot(mask)
            constants = {*constants, mask}
        return replace(roles, constants=frozenset(map(roles.slot, constants)), mask=mask)

    def slot(self, given: Slot) -> Slot:
        """The name of a position, if it has one."""
        return self.names[given] if isinstance(given, int) and 0 <= given < len(self.names) else given

    def by_slot(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[Slot, Any]:
        return {self.slot(i): value for i, value in enumerate(args)} | dict(kwargs)

    def scales(self, slot: Slot) -> bool:
        return slot not in {*self.constants, *_KEEPING, *_DROPPING}

    def may_mask(self) -> bool:
        return self.mask is not None or any(name in self.names for name in (*_KEEPING, *_DROPPING))

    def masks(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[Slot, Tensor]:
        """The masks of a call, as booleans shaped [batch, tokens] that are True for what counts."""
        if callable(self.mask):
            return {"mask": _to_boolean(self.mask(*args, **kwargs), dropping=False)}
        keeping, dropping = (_KEEPING, _DROPPING) if self.mask is None else ((self.mask,), ())
        return {
            slot: _to_boolean(value, dropping=slot in dropping)
            for slot, value in self.by_slot(args, kwargs).items()
            if slot in (*keeping, *dropping) and isinstance(value, Tensor) and value.dim() > 1
        }


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
