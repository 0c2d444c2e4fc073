"""Pixel-flipping of Quantus and keep-negative curves are the same numbers where they mean the same."""

import numpy as np
import pytest
import torch
from torch import nn

from axiograd.metrics import keep_negative_mask


def test_pixel_flipping_is_keep_negative_read_backwards():
    quantus = pytest.importorskip("quantus")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 3)).eval()
    x, a = torch.randn(2, 4, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 1])
    flipping = quantus.PixelFlipping(
        features_in_step=1,
        abs=False,
        normalise=False,
        perturb_func=quantus.perturb_func.batch_baseline_replacement_by_indices,
        perturb_baseline=0.0,
        disable_warnings=True,
        return_aggregate=False,
    )
    theirs = np.array(
        flipping(
            model=model, x_batch=x.numpy(), y_batch=labels.numpy(), a_batch=a.numpy(), softmax=False, channel_first=True
        )
    )
    # Flipping the k highest of 36 pixels keeps the 36 - k lowest. Shifted below zero, attributions rank as before and
    # all are candidates for keep-negative, which keeps the lowest first.
    fractions = tuple(kept / 36 for kept in range(36))
    ours = keep_negative_mask(model, x, a - a.max() - 1, labels, fractions=fractions, masking="zero")
    np.testing.assert_allclose(ours.scores.flip(1).numpy(), theirs, atol=1e-5)
