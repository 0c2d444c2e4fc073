"""The blur against a dense kernel applied pixel by pixel, and every other masking value against its definition."""

import numpy as np
import pytest
import torch

from axiograd.errors import ConfigurationError, InputError
from axiograd.metrics import Blur
from axiograd.metrics.masking_value import masked_out


def dense_blur(images, size, sigma):
    """Reflect, then weigh every pixel of the dense kernel: nothing is separated, nothing is folded."""
    half = size // 2
    kernel = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            kernel[i, j] = np.exp(-(((i - half) / (2 * sigma)) ** 2)) * np.exp(-(((j - half) / (2 * sigma)) ** 2))
    kernel /= kernel.sum()
    height, width = images.shape[-2:]
    padded = np.pad(images, ((0, 0), (0, 0), (half, half), (half, half)), mode="reflect")
    blurred = np.zeros_like(images)
    for i in range(size):
        for j in range(size):
            blurred += kernel[i, j] * padded[..., i : i + height, j : j + width]
    return blurred


@pytest.mark.parametrize(
    ("size", "sigma", "shape"), [(51, 41.0, (2, 3, 30, 41)), (5, 1.5, (1, 1, 3, 8)), (1, 1.0, (1, 2, 2, 2))]
)
def test_blur_is_the_dense_kernel(size, sigma, shape):
    images = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = dense_blur(images.numpy(), size, sigma)
    np.testing.assert_allclose(Blur(size, sigma)(images).numpy(), expected, atol=1e-13)


def test_the_default_is_the_papers_blur():
    images = torch.randn(1, 3, 26, 26, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(
        masked_out(images, None).numpy(), dense_blur(images.double().numpy(), 51, 41.0), atol=1e-6
    )
    assert torch.equal(masked_out(images, "blur"), Blur(51, 41.0)(images))


def test_a_constant_image_stays_as_it_is():
    image = torch.full((1, 1, 40, 30), 0.7, dtype=torch.float64)
    assert torch.allclose(Blur()(image), image, atol=1e-14)


def test_small_images_are_told_what_to_do():
    with pytest.raises(InputError, match="side of 25 are too small to be reflected by 25"):
        masked_out(torch.zeros(1, 3, 25, 60), "blur")
    with pytest.raises(InputError, match=r"\(4, 7\) cannot be blurred"):
        masked_out(torch.zeros(4, 7), "blur")


def test_words_numbers_tensors_and_callables():
    rows = torch.tensor([[1.0, 5.0], [3.0, 7.0]])
    assert torch.equal(masked_out(rows, None), torch.zeros(2, 2))
    assert torch.equal(masked_out(rows, "mean"), torch.tensor([[2.0, 6.0], [2.0, 6.0]]))
    assert torch.equal(masked_out(rows, 0.5), torch.full((2, 2), 0.5))
    assert torch.equal(masked_out(rows, torch.tensor([9.0, 8.0])), torch.tensor([[9.0, 8.0], [9.0, 8.0]]))
    assert torch.equal(masked_out(rows, lambda x: -x), -rows)
    image = torch.arange(8.0).reshape(1, 2, 2, 2)
    assert torch.equal(masked_out(image, "mean")[0, :, 0, 0], torch.tensor([1.5, 5.5]))


def test_wrong_values_are_refused():
    with pytest.raises(ConfigurationError, match="masking='noise'"):
        masked_out(torch.zeros(1, 2), "noise")
    with pytest.raises(InputError, match=r"shape \(3,\) does not fit inputs of \(1, 2\)"):
        masked_out(torch.zeros(1, 2), torch.zeros(3))
    with pytest.raises(ConfigurationError, match="kernel_size=4"):
        Blur(kernel_size=4)
