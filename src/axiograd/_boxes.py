"""What a box covers: the one meaning that priors, metrics, data sets and pages share."""

import torch
from torch import Tensor


def covered_pixels(boxes: Tensor, height: int, width: int) -> Tensor:
    """Masks [..., height, width] of boxes ``x0 y0 x1 y1`` [..., 4]: true where a pixel's centre is in the box.

    Coordinates are those of edges: column j reaches from j to j + 1, and is inside where x0 ≤ j + ½ < x1. So whole
    numbers are half-open ranges, ``mask[y0:y1, x0:x1]``, and boxes side by side share no pixel. Where a file's boxes
    include their last column and row, 1 is added to x1 and y1 when they are read.

    >>> covered_pixels(torch.tensor([1, 0, 3, 1]), 2, 4).int()
    tensor([[0, 1, 1, 0],
            [0, 0, 0, 0]], dtype=torch.int32)
    >>> covered_pixels(torch.tensor([1.5, 0.5, 3.5, 2.5]), 3, 5).int()
    tensor([[0, 1, 1, 0, 0],
            [0, 1, 1, 0, 0],
            [0, 0, 0, 0, 0]], dtype=torch.int32)
    """
    # Half precision cannot tell the columns of a large image apart.
    edges = boxes if boxes.dtype == torch.float64 else boxes.float()
    x0, y0, x1, y1 = edges.unsqueeze(-1).unbind(-2)
    x, y = (torch.arange(n, device=edges.device, dtype=edges.dtype) + 0.5 for n in (width, height))
    across, down = (x >= x0) & (x < x1), (y >= y0) & (y < y1)
    return down.unsqueeze(-1) & across.unsqueeze(-2)
