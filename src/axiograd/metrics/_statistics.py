"""Means over samples and how sure they are."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def standard_error(values: Tensor) -> Tensor:
    """s / √n along the first dimension; NaN for a single sample, which says nothing about its spread.

    >>> standard_error(torch.tensor([1.0, 3.0]))
    tensor(1.)
    """
    n = len(values)
    if n < 2:  # noqa: PLR2004  # a spread needs two values
        return torch.full_like(values.sum(0), torch.nan)
    return values.std(0) / math.sqrt(n)
