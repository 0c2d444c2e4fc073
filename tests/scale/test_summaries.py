"""Each summary against NumPy, pixel by pixel; what adds up adds up."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from axiograd.errors import ConfigurationError, InputError
from axiograd.scale import Histogram, LowRank, PerChannel, Pixels, Regions, TopK, Windows
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
    row = {name: column[0] for name, column in found.items()}
    spread = Windows(size).reconstruct(row, (height, width))
    assert spread.shape == (height, width)
    np.testing.assert_allclose(spread.sum(), maps[0].sum(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        Windows(size)(torch.from_numpy(spread)[None, None])["windows"][0], row["windows"], atol=1e-5
    )


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
    row = {name: column[0] for name, column in found.items()}
    again = TopK(5).reconstruct(row, (11, 7))
    np.testing.assert_allclose(again.sum(), flat[0].sum(), rtol=1e-5)
    np.testing.assert_allclose(again.flat[found["top_places"][0]], found["top_values"][0])
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


def test_histogram_counts_every_place_once():
    a = images()
    found = Histogram(6, 3.0)(a)
    flat = a.sum(1).flatten(1).numpy()
    assert (found["histogram"].sum(1) == 77).all()
    relative = flat / np.abs(flat).max(1, keepdims=True)
    edges = [3.0**-i for i in range(6, 0, -1)]
    positive = [
        ((relative[0] >= low) & (relative[0] < high)).sum() for low, high in zip(edges, [*edges[1:], 2], strict=True)
    ]
    assert found["histogram"][0, 7:].tolist() == positive
    assert found["histogram"][0, 6] == (np.abs(relative[0]) < edges[0]).sum()
    assert Histogram(2)(torch.zeros(1, 5))["histogram"].tolist() == [[0, 0, 5, 0, 0]]


def test_low_rank_is_the_best_of_its_rank():
    a = images(1, 1, 12, 9)
    row = {name: column[0] for name, column in LowRank(3)(a).items()}
    u, s, v = np.linalg.svd(a[0, 0].numpy())
    best = (u[:, :3] * s[:3]) @ v[:3]
    assert np.abs(LowRank(3).reconstruct(row, (12, 9)) - best).max() < 5e-3 * s[0]


def test_pixels_are_everything():
    a = images().float()
    row = {name: column[1] for name, column in Pixels()(a).items()}
    np.testing.assert_allclose(Pixels().reconstruct(row, (11, 7)), as_maps(a)[1].numpy(), rtol=1e-5, atol=1e-5)


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
        lambda: Histogram(0),
        lambda: LowRank(0),
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
    row = {name: values[0] for name, values in found.items()}
    np.testing.assert_allclose(Windows(10**9).reconstruct(row, (5, 7)), float(a[0].sum()) / 35, rtol=1e-4, atol=1e-6)
