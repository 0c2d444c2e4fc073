"""Positive attribution should lie inside."""

import torch
from torch import Tensor

from axiograd.attribution.passes import listed
from axiograd.errors import ConfigurationError, InputError
from axiograd.priors._masks import Boxes, Maps, align, as_tensor, inside_boxes
from axiograd.priors._ops import rescaled, rows, share
from axiograd.priors.base import Prior

_IMAGE = 4


class Energy(Prior):
    """One minus the share of positive attribution inside, mean over samples.

    Ω = (1/m)·Σₛ 1 − Σ_{i∈S} aᵢ⁺ / Σᵢ aᵢ⁺.

    Inside is given by `boxes` in pixels `x0 y0 x1 y1`, half-open as in `axiograd.metrics.boxes_to_masks` ([batch, 4],
    [batch, k, 4] padded with NaN, or a list of [k, 4]; several boxes unite), or by masks `inside` [batch, *features]
    of values from 0 to 1 (bytes: from 0 to 255). A sample without either (None or no box in a list, False in
    `has_inside`) adds 0; one without positive attribution adds 1. Images [batch, channels, height, width] are summed
    over their channels first, unless `sum_channels=False`.

    Rao et al.: Studying how to efficiently and effectively guide models with explanations, 2023.

    >>> import torch
    >>> attributions = torch.tensor([[[[3.0, 1.0], [-5.0, 0.0]]]])
    >>> Energy()(attributions, boxes=torch.tensor([[0, 0, 1, 2]]))
    tensor(0.2500)
    """

    def __init__(self, *, sum_channels: bool = True) -> None:
        super().__init__()
        self.sum_channels = sum_channels

    def forward(
        self,
        attributions: Tensor,
        *,
        boxes: Boxes | None = None,
        inside: Maps = None,
        has_inside: Tensor | None = None,
    ) -> Tensor:
        if (boxes is None) == (inside is None):
            given = "neither" if boxes is None else "both"
            raise ConfigurationError(f"prior Energy needs the argument 'boxes' or 'inside', got {given}.")
        if inside is not None and not isinstance(inside, list | tuple):
            inside = as_tensor(inside, "inside")
        if self.sum_channels and attributions.ndim == _IMAGE:
            attributions = attributions.sum(1)
            if isinstance(inside, Tensor) and inside.ndim == _IMAGE and inside.shape[1] == 1:
                inside = inside.squeeze(1)
        boxed = torch.ones(len(attributions), dtype=torch.bool, device=attributions.device)
        if boxes is not None:
            if attributions.ndim <= 2:  # noqa: PLR2004 (batch, height, width)
                raise InputError(
                    f"prior Energy needs attributions of images for 'boxes', got shape {list(attributions.shape)}."
                )
            inside, boxed = inside_boxes(boxes, attributions)
        mask, has = align(inside, has_inside, attributions, "inside")
        if boxes is not None and not torch.compiler.is_compiling():
            _check_boxes(rows(mask).any(1) | ~(has & boxed))
        if not torch.compiler.is_compiling() and bool(((mask < 0) | (mask > 1)).any()):
            raise InputError(
                f"prior Energy: 'inside' has values from {float(mask.min()):.4g} to {float(mask.max()):.4g}; what is "
                "inside has 1 and what is not has 0, or something between."
            )
        positive = rescaled(attributions.clamp(min=0))
        outside = 1 - share(rows(positive * mask).sum(1), rows(positive).sum(1))
        return torch.where(has & boxed, outside, torch.zeros_like(outside)).mean()


def _check_boxes(filled: Tensor) -> None:
    """A box without a pixel has a share of 0 whatever the model does, and so no gradient."""
    if not bool(filled.all()):
        raise InputError(
            f"the boxes of sample {listed(~filled)} contain no pixel: reversed, empty or outside the image. Give "
            "x0 < x1 and y0 < y1 (add 1 to corners that are meant to be inside), or None for a sample without a box."
        )
