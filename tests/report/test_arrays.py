import numpy as np
import pytest
import torch

from axiograd.errors import ConfigurationError, InputError, NotFiniteError
from axiograd.report.arrays import bounding_box, colour_end, separate, to_array, to_image, to_map


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_any_dtype_and_a_graph_are_read(dtype):
    values = torch.ones(2, 2, dtype=dtype)
    if dtype.is_floating_point:
        values.requires_grad_()
    assert to_array(values).tolist() == [[1, 1], [1, 1]]


def test_a_batch_and_a_list_are_the_same():
    batch = torch.randn(3, 2, 4, 4)
    assert all(torch.equal(a, b) for a, b in zip(separate(batch), separate(list(batch)), strict=True))


def test_images_in_range_are_left_alone_and_others_stretched():
    assert to_image(torch.tensor([[0.2, 0.4]]))[0, :, 0].tolist() == pytest.approx([0.2, 0.4])
    assert to_image(torch.tensor([[0, 255]], dtype=torch.uint8))[0, :, 0].tolist() == [0, 1]
    assert to_image(torch.tensor([[0, 1]], dtype=torch.uint8))[0, 1, 0] == pytest.approx(1 / 255)
    assert to_image(torch.tensor([[-2.0, 0.0, 2.0]]))[0, :, 0].tolist() == [0, 0.5, 1]
    assert to_image(np.zeros((5, 7, 3))).shape == (5, 7, 3)
    assert to_image(torch.full((1, 2, 2), 7.0)).tolist() == np.full((2, 2, 3), 0.5).tolist()


def test_the_box_is_tight_or_none():
    mask = torch.zeros(3, 6, 8)
    mask[1, 2, 3] = mask[2, 4, 5] = 1
    assert bounding_box(mask) == (3, 2, 6, 5)
    assert bounding_box(torch.zeros(4, 4)) is None


def test_colours_end_at_the_percentile_unless_that_is_zero():
    values = np.arange(1001.0)
    assert colour_end([values], 90) == 900
    one_pixel = np.zeros(1000)
    one_pixel[3] = -5
    assert colour_end([one_pixel]) == 5
    assert colour_end([one_pixel], positive_only=True) == 1


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: to_array([1.0, float("nan")]), NotFiniteError, "1 of 2"),
        (lambda: to_array([]), InputError, "no elements"),
        (lambda: to_map(torch.ones(3)), InputError, r"\(3,\)"),
        (lambda: separate(3.0), InputError, "float"),
        (lambda: to_image(torch.ones(1, 1, 1, 1)), InputError, "image"),
        (lambda: colour_end([np.ones(2)], 0), ConfigurationError, "clip"),
    ],
)
def test_errors_name_the_thing(call, error, words):
    with pytest.raises(error, match=words):
        call()
