import sys

import numpy as np
import pytest
import torch

from axiograd.errors import ConfigurationError, InputError, MissingExtraError
from axiograd.report import before_after, compare, heatmap
from axiograd.report.colours import ANCHORS, colour, matplotlib_map
from axiograd.report.heatmaps import overlay

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
    figure = heatmap(torch.tensor([[-1.0, 0.0], [2.0, 4.0]]), clip=100)
    assert drawn(figure.axes[0]).get_clim() == (-4, 4)
    middle = np.array(matplotlib_map()(0.5)[:3])
    assert np.abs(middle - colour(np.array(0.0)) / 255).max() < 0.01


def test_positive_shows_nothing_below_zero():
    figure = heatmap(torch.tensor([[-1.0, 0.0], [2.0, 4.0]]), kind="positive", clip=100)
    assert drawn(figure.axes[0]).get_clim() == (0, 4)
    assert "negative values not shown" in figure.get_supxlabel().replace("\n", " ")


def test_shared_scale_is_one_for_all_and_per_image_is_each_ones_own():
    values = torch.stack([torch.ones(1, 2, 2), 5 * torch.ones(1, 2, 2)])
    shared = heatmap(values)
    assert {drawn(a).get_clim() for a in shared.axes[:2]} == {(-5, 5)}
    own = heatmap(values, scale="per-image", titles=["a", "b"])
    assert [drawn(a).get_clim() for a in own.axes[:2]] == [(-1, 1), (-5, 5)]
    assert [a.get_title() for a in own.axes[:2]] == ["a ±1", "b ±5"]


def test_the_figure_states_clipping_and_channels():
    note = heatmap(torch.randn(3, 20, 20), clip=90, channels="mean").get_supxlabel().replace("\n", " ")
    assert "90th percentile" in note
    assert "mean over channels" in note


def test_one_colour_bar_whatever_the_number_of_maps():
    assert len(heatmap(torch.randn(7, 1, 3, 3)).axes) == 7 + 5 + 1  # six columns, two rows, five of them hidden


def test_overlay_is_grey_where_nothing_is_attributed():
    picture = np.random.default_rng(0).random((3, 3, 3))
    shown = overlay(np.zeros((3, 3)), picture, 1.0)
    assert np.allclose(shown, picture.mean(-1, keepdims=True))
    assert np.allclose(overlay(np.full((3, 3), 2.0), picture, 1.0), colour(np.array(0.5)) / 255)


def test_names_with_dollar_signs_are_text():
    figure = compare(torch.rand(1, 1, 4, 4), {"$\\frac{": torch.rand(1, 1, 4, 4)}, titles=["$x_"], title="a $ b $")
    figure.canvas.draw()


def test_before_and_after_stand_beside_their_image():
    x = torch.rand(2, 3, 4, 4)
    figure = before_after(x, x, -x)
    assert [a.get_title() for a in figure.axes[:3]] == ["image", "before", "after"]
    assert np.array_equal(drawn(figure.axes[2]).get_array(), -x[0].double().sum(0).numpy())


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
    ],
)
def test_errors_name_the_thing(call, error, words):
    with pytest.raises(error, match=words):
        call(torch.rand(2, 1, 4, 4))


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    for name in ("matplotlib.figure", "matplotlib.colors", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"axiograd\[plots\]"):
        heatmap(torch.rand(2, 2))
    with pytest.raises(MissingExtraError, match=r"axiograd\[plots\]"):
        matplotlib_map()


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
