"""No attribution where a mask says "not here"."""

import torch
from torch import Tensor

from axiograd.errors import InputError
from axiograd.priors._masks import Maps, align
from axiograd.priors._ops import rows
from axiograd.priors.base import Prior

_BYTE = 255


class RightReasons(Prior):
    """The squared attribution of the features that must not count, mean over samples.

    Ω = (1/m)·Σₛ Σᵢ (Mₛᵢ·aₛᵢ)².

    `mask` [batch, *features] (or without or with one channel) is true, or a weight, where a feature is
    wrong. A sample without a mask adds 0: None in a list of masks, False in `has_mask` [batch], or
    `mask=None` for them all.

    Ross, Hughes, Doshi-Velez: Right for the right reasons, 2017.

    >>> import torch
    >>> attributions = torch.tensor([[3.0, 1.0], [5.0, 2.0]])
    >>> RightReasons()(attributions, mask=[torch.tensor([1, 0]), None])
    tensor(4.5000)
    """

    def forward(self, attributions: Tensor, *, mask: Maps, has_mask: Tensor | None = None) -> Tensor:
        wrong, _ = align(mask, has_mask, attributions, "mask")
        if not torch.compiler.is_compiling() and wrong.numel() and float(wrong.detach().amax()) == _BYTE:
            raise InputError("prior RightReasons: 'mask' has values up to 255, the bytes of an image; divide by 255.")
        return rows(wrong * attributions).square().sum(1).mean()
