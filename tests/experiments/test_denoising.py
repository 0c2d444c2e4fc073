"""Denoisers with and without biases: what is measured, against NumPy and by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from axiograd.experiments import denoising


def test_the_x_form_does_not_see_contrast(quick):
    done = quick("denoising")
    regular, x, noisy = done.table.rows
    assert (regular[0], x[0], noisy[0]) == ("regular", "X", "the noisy image")
    first = done.table.header.index("α = 0.5")
    assert len({x[2], *x[first : first + 3]}) == 1  # σ = 30 at every contrast
    assert len({regular[2], *regular[first : first + 3]}) > 1
    assert regular[-2:] == (None, None)
    assert all(0 < float(cell) <= 100 for cell in x[-2:])


def test_psnr():
    ours, theirs = torch.rand(3, 1, 8, 8), torch.rand(3, 1, 8, 8)
    mse = ((ours - theirs).double().numpy() ** 2).mean((1, 2, 3))
    assert denoising.psnr(ours, theirs).tolist() == pytest.approx((10 * np.log10(1 / mse)).tolist(), rel=1e-5)


@pytest.mark.parametrize(("size", "share"), [(5, 1.0), (7, 25 / 49)])
def test_near_is_within_two_pixels(size, share):
    box = nn.Conv2d(1, 1, size, padding=size // 2, bias=False)
    nn.init.ones_(box.weight)
    assert denoising.near_share(box, torch.ones(2, 1, 16, 16)) == pytest.approx(share)


def test_patches_come_from_the_images():
    images = torch.arange(2.0).reshape(2, 1, 1, 1).expand(2, 1, 40, 40)
    found = denoising.patches(images, 10, seed=0)
    assert found.shape == (10, 1, denoising.PATCH, denoising.PATCH)
    assert {float(patch.unique()) for patch in found} == {0.0, 1.0}
