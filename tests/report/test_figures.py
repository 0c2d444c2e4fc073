"""Figures: what is drawn is what was given, with the colours that the bar shows."""

import sys

import numpy as np
import pytest
import torch

from axiograd.errors import ConfigurationError, InputError, MissingExtraError
from axiograd.report import compare, feature_bars, heatmap, save
from axiograd.report.colours import ANCHORS, colour, overlay

ODD = {
    "zero": torch.zeros(2, 3, 5, 5),
    "constant": torch.full((1, 1, 4, 4), -3.0),
    "single pixel": torch.ones(1, 1),
    "tiny": torch.full((1, 2, 2), 5e-324, dtype=torch.float64),
    "huge": torch.tensor([[1e300, -1e300]], dtype=torch.float64),
    "one line": torch.randn(1, 1, 50),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("kind", ["signed", "positive", "overlay"])
def test_no_map_is_too_odd(name, kind):
    values = ODD[name]
    figure = heatmap(values, torch.zeros_like(values), kind=kind, scale="per-image")
    figure.canvas.draw()


def drawn(axes):
    return axes.get_images()[0]


def test_zero_is_the_middle_of_the_map_and_both_sides_reach_equally_far():
    values = torch.tensor([[-1.0, 0.0], [2.0, 4.0]])
    assert drawn(heatmap(values, clip=100).axes[0]).get_clim() == (-4, 4)
    assert drawn(heatmap(values, kind="positive", clip=100).axes[0]).get_clim() == (0, 4)


def test_shared_scale_is_one_for_all_and_per_image_is_each_ones_own():
    values = torch.stack([torch.ones(1, 2, 2), 5 * torch.ones(1, 2, 2)])
    shared = heatmap(values)
    assert {drawn(a).get_clim() for a in shared.axes[:2]} == {(-5, 5)}
    own = heatmap(values, scale="per-image", titles=["a", "b"])
    assert [drawn(a).get_clim() for a in own.axes[:2]] == [(-1, 1), (-5, 5)]
    assert [a.get_xlabel() for a in own.axes[:2]] == ["±1", "±5"]


def test_the_colour_bar_of_an_overlay_has_exactly_the_colours_of_its_picture():
    values = torch.linspace(-1, 1, 511)[None]
    figure = heatmap(values, torch.full((1, 511), 0.5), kind="overlay", clip=100)
    picture, bar = figure.axes[0].get_images()[0].get_array()[0], figure.axes[-1].collections[-1].cmap
    assert np.abs(bar(np.linspace(0, 1, 511))[:, :3] - picture).max() < 0.01


def test_the_figure_states_clipping_channels_and_windows():
    note = heatmap(torch.randn(3, 130, 140), clip=90).get_supxlabel().replace("\n", " ")
    for words in ("90th percentile", "sum over channels", "sums over 8 × 8 pixels"):
        assert words in note


def test_photos_are_shown_in_window_sums_and_small_images_are_not():
    photo, small = torch.randn(3, 130, 140), torch.randn(1, 28, 28)
    shown = drawn(heatmap(photo).axes[0]).get_array()
    windows = torch.nn.functional.avg_pool2d(photo.double().sum(0)[None], 8, ceil_mode=True, divisor_override=1)[0]
    np.testing.assert_allclose(shown[::8, ::8], windows, rtol=1e-9)
    np.testing.assert_allclose(drawn(heatmap(photo, pool=1).axes[0]).get_array(), photo.double().sum(0))
    np.testing.assert_allclose(drawn(heatmap(small).axes[0]).get_array(), small[0])
    with pytest.raises(ConfigurationError, match="pool=0"):
        heatmap(small, pool=0)


def test_images_stand_beside_their_maps():
    x = torch.rand(2, 3, 4, 4)
    figure = compare(x, {"before": x, "after $x_": -x}, titles=["$\\frac{", "b"])
    figure.canvas.draw()
    assert [a.get_title() for a in figure.axes[:3]] == ["image", "before", "after $x_"]
    assert np.array_equal(drawn(figure.axes[2]).get_array(), -x[0].double().sum(0).numpy())
    assert len(heatmap(torch.randn(7, 1, 3, 3)).axes) == 12 + 1  # two rows of six, and the colour bar


def test_overlay_is_grey_where_nothing_is_attributed():
    picture = np.random.default_rng(0).random((3, 3, 3))
    assert np.allclose(overlay(np.zeros((3, 3)), picture), picture.mean(-1, keepdims=True))
    assert np.allclose(overlay(np.full((3, 3), 2.0), picture), colour(np.array(0.5)) / 255)


def test_bars_are_the_largest_features_and_the_rest():
    attribution = torch.tensor([0.5, -2.0, 0.1, 0.2])
    axes = feature_bars(attribution, ["age", "income", "height", "sex"], values=[39.0, "low", 1, "f"], top=2).axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["income = low", "age = 39", "2 others"]
    assert [round(bar.get_width(), 6) for bar in axes.patches] == [-2.0, 0.5, 0.3]
    batch = feature_bars(torch.tensor([[1.0, -5.0], [1.0, 5.0]])).axes[0]
    assert [bar.get_width() for bar in batch.patches] == [5.0, 1.0]
    feature_bars(torch.zeros(3)).canvas.draw()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: heatmap(x, kind="loud"), ConfigurationError, "loud"),
        (lambda x: heatmap(x, scale="mine"), ConfigurationError, "mine"),
        (lambda x: heatmap(x, kind="overlay"), ConfigurationError, "image"),
        (lambda x: heatmap(x, x[:1]), InputError, "2 attributions for 1"),
        (lambda x: heatmap(x, titles=["a"]), InputError, "1 titles for 2"),
        (lambda x: heatmap(x[..., :2], x), InputError, "pixels"),
        (lambda x: compare(x, {}), InputError, "at least one"),
        (lambda x: compare(x, {"a": x, "b": x[:1]}), InputError, "one each"),
        (lambda x: feature_bars(torch.ones(2), ["a"]), InputError, "1 names"),
    ],
)
def test_errors_name_the_thing(call, error, words):
    with pytest.raises(error, match=words):
        call(torch.rand(2, 1, 4, 4))


def test_files_are_repeatable_and_need_no_pyplot(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    values = torch.randn(4, 4)
    for name in ("a", "b"):
        heatmap(values, title="水獺", path=[tmp_path / f"{name}.png", tmp_path / f"{name}.pdf"])  # a font lacks them
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()
    with pytest.raises(ConfigurationError, match=r"a\.gif"):
        save(heatmap(values), tmp_path / "a.gif")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"axiograd\[plots\]"):
        heatmap(torch.rand(2, 2))


def luminance(hexadecimal):
    linear = [((c / 255 + 0.055) / 1.055) ** 2.4 if c > 10 else c / 255 / 12.92 for c in bytes.fromhex(hexadecimal[1:])]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_map_darkens_steadily_from_zero_on_both_sides():
    light = [luminance(a) for a in ANCHORS]
    middle = len(ANCHORS) // 2
    assert light[: middle + 1] == sorted(light[: middle + 1])
    assert light[middle:] == sorted(light[middle:], reverse=True)
    for near, far in zip(light[:middle], reversed(light[middle + 1 :]), strict=True):
        assert abs(near - far) < 0.08


# What people without one kind of cone see (Viénot, Brettel and Mollon 1999, linear RGB).
DICHROMACY = {
    "protanopia": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
    "deuteranopia": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
}


@pytest.mark.parametrize("kind", DICHROMACY)
def test_signs_stay_apart_for_the_colour_blind(kind):
    rgb = np.array([list(bytes.fromhex(a[1:])) for a in ANCHORS]) / 255
    seen = np.clip(rgb**2.2 @ np.array(DICHROMACY[kind]).T, 0, 1) ** (1 / 2.2)
    # What is left to them is yellow against blue.
    yellow = (seen[:, 0] + seen[:, 1]) / 2 - seen[:, 2]
    middle = len(ANCHORS) // 2
    assert (yellow[middle + 1 :] - yellow[:middle][::-1] > 0.25).all()
