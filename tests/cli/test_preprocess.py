import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from axiograd.cli.inputs import choose
from axiograd.datasets import IMAGENET, SQUEEZENET, TINY_IMAGENET
from axiograd.errors import ConfigurationError

RGB, GREY = nn.Conv2d(3, 2, 3), nn.Conv2d(1, 2, 3)


def picture(size=(8, 6)):
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [("xsqueezenet1_1", SQUEEZENET), ("resnet18", TINY_IMAGENET), ("alexnet", IMAGENET), ("a.py:b", IMAGENET)],
)
def test_a_model_gets_what_it_was_trained_with(spec, expected):
    assert choose(spec, RGB).transform == expected


def test_options_win():
    chosen = choose("squeezenet1_1", RGB, size=4, mean="0.5", std="0.5,0.25,0.125")
    x = chosen(picture())
    assert x.shape == (3, 4, 4)
    plain = choose("squeezenet1_1", RGB, preset="pixels", size=4)(picture())
    expected = (plain - 0.5) / torch.tensor([0.5, 0.25, 0.125])[:, None, None]
    torch.testing.assert_close(x, expected)
    assert str(chosen).endswith("RGB, values 0 to 1, minus 0.5, divided by (0.5, 0.25, 0.125)")


def test_one_channel_is_grey():
    chosen = choose("a.py:b", GREY)
    x = chosen(picture())
    expected = torch.from_numpy(np.asarray(picture().convert("L")).astype(np.float32) / 255)
    torch.testing.assert_close(x, expected[None])
    assert chosen.transform.picture(x).shape == (3, 6, 8)
    assert chosen.zero == "zero, a black image"
    assert choose("a.py:b", GREY, mean="0.5").zero == "zero, an image of the mean colour"


@pytest.mark.parametrize("preset", ["imagenet", "squeezenet", "caffe", "tiny-imagenet", "pixels"])
def test_pictures_are_what_was_seen(preset):
    chosen = choose("a.py:b", RGB, preset=preset, size=6)
    plain = choose("a.py:b", RGB, preset="pixels", size=6)
    torch.testing.assert_close(chosen.transform.picture(chosen(picture())), plain(picture()), atol=1e-5, rtol=0)


def test_mistakes_are_named():
    for options in ({"preset": "x"}, {"mean": "a"}, {"std": "1,2"}, {"std": "-1"}):
        with pytest.raises(ConfigurationError, match="--"):
            choose("a.py:b", RGB, **options)
