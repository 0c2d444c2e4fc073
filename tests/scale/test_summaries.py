"""Each summary against NumPy, pixel by pixel; what adds up adds up."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from axiograd.errors import ConfigurationError, InputError
from axiograd.scale import PerChannel, Pixels, Regions, TopK, Windows
from axiograd.scale.summaries import BUDGET, as_maps, gini


def images(n=3, channels=3, height=11, width=7, seed=0):
    return torch.randn(n, channels, height, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(st.integers(1, 13), st.integers(1, 13), st.integers(1, 6))
@settings(deadline=None, max_examples=30)
def test_windows_are_sums_over_squares(height, width, size):
    a = images(2, 3, height, width)
    found = Windows(size)(a)
    maps = a.sum(1).numpy()
    tall = 1 if height == 1 else size
    expected = [
        [maps[i, y : y + tall, x : x + size].sum() for y in range(0, height, tall) for x in range(0, width, size)]
        for i in range(2)
    ]
    np.testing.assert_allclose(found["windows"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["windows"].sum(1), maps.sum((1, 2)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("height", "width", "size"), [(224, 224, 8), (227, 227, 8), (28, 28, 1), (1, 900, 1), (512, 640, 20)]
)
def test_the_default_window_fits_the_budget(height, width, size):
    windows = Windows()
    assert windows.size_of(height, width) == size
    assert windows(torch.zeros(1, 1, height, width))["windows"].nbytes <= BUDGET


def test_top_k_is_the_largest_and_the_rest():
    a = images()
    found = TopK(5)(a)
    flat = a.sum(1).flatten(1).numpy()
    for i in range(3):
        expected = np.argsort(-np.abs(flat[i]))[:5]
        assert found["top_places"][i].tolist() == expected.tolist()
    np.testing.assert_allclose(found["top_values"].sum(1) + found["rest"], flat.sum(1), rtol=1e-5)
    np.testing.assert_allclose(flat[0][found["top_places"][0]], found["top_values"][0], rtol=1e-5)
    assert TopK(500)(a)["top_places"].shape == (3, 77)


def test_channels():
    a = images()
    found = PerChannel()(a)
    n = a.numpy()
    np.testing.assert_allclose(found["positive"], np.where(n > 0, n, 0).sum((2, 3)), rtol=1e-5)
    np.testing.assert_allclose(found["positive"] + found["negative"], n.sum((2, 3)), rtol=1e-4, atol=1e-5)


def test_regions_are_boxes_and_masks():
    a = images()
    mask = torch.zeros(11, 7)
    mask[2:5, 1:4] = 1
    found = Regions({"box": (1, 2, 4, 5), "mask": mask})(a)
    maps = a.sum(1).numpy()
    share = np.abs(maps[:, 2:5, 1:4]).sum((1, 2)) / np.abs(maps).sum((1, 2))
    for name in ("box", "mask"):
        np.testing.assert_allclose(found[f"share_{name}"], share, rtol=1e-5)
        np.testing.assert_allclose(found[f"sum_{name}"], maps[:, 2:5, 1:4].sum((1, 2)), rtol=1e-4, atol=1e-5)
    assert Regions({"box": (0, 0, 2, 2)})(torch.zeros(1, 1, 4, 4))["share_box"] == 0
    with pytest.raises(InputError, match="covers no pixel"):
        Regions({"far": (20, 20, 30, 30)})(a)


def test_pixels_are_everything():
    a = images().float()
    np.testing.assert_array_equal(Pixels()(a)["attributions"].reshape(a.shape), a.numpy())


def test_gini_is_the_mean_difference_over_twice_the_mean():
    maps = as_maps(images(4))
    flat = maps.flatten(1).abs().numpy()
    expected = [np.abs(row[:, None] - row).mean() / (2 * row.mean()) for row in flat]
    np.testing.assert_allclose(gini(maps).numpy(), expected, rtol=1e-10)
    assert gini(torch.zeros(1, 2, 2)).tolist() == [0.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Windows(0),
        lambda: TopK(0),
        lambda: Regions({}),
        lambda: Regions({"a b": (0, 0, 1, 1)}),
        lambda: Regions({"a": (0, 0, 1)}),
    ],
)
def test_settings_that_cannot_work(make):
    with pytest.raises(ConfigurationError):
        make()


def test_a_window_larger_than_the_map_is_all_of_it():
    a = torch.randn(2, 3, 5, 7)
    found = Windows(10**9)(a)
    assert found["grid"].tolist() == [[1, 1]] * 2
    np.testing.assert_allclose(found["windows"][:, 0], a.sum((1, 2, 3)).numpy(), rtol=1e-4, atol=1e-5)
