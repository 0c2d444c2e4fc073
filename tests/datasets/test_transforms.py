"""Resizing, cropping, normalising; the training augmentation."""

import sys

import numpy as np
import pytest
import torch
from PIL import Image

from axiograd.datasets import IMAGENET, PIXELS, SQUEEZENET, Augment, Preprocess
from axiograd.datasets.images import centre_crop, pillow, random_box, resize_short_side
from axiograd.errors import MissingExtraError


def noise(width, height):
    values = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


@pytest.mark.parametrize(
    ("size", "expected"),
    [((500, 333), (384, 256)), ((333, 500), (256, 384)), ((256, 256), (256, 256)), ((10, 7), (365, 256))],
)
def test_short_side(size, expected):
    assert resize_short_side(noise(*size), 256).size == expected


def test_centre_crop_is_the_middle():
    image = noise(9, 6)
    pixels = np.asarray(image)
    assert np.array_equal(np.asarray(centre_crop(image, 4)), pixels[1:5, 2:6])


def test_imagenet_by_hand():
    image = noise(256, 300)
    pixels = np.asarray(image)[38:262, 16:240] / 255
    expected = (pixels - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
    torch.testing.assert_close(IMAGENET(image), torch.from_numpy(expected).permute(2, 0, 1).float())


def test_squeezenet_by_hand():
    image = noise(256, 256)
    pixels = np.asarray(image)[14:241, 14:241, ::-1].astype(float) - np.array([103.939, 116.779, 123.68])
    torch.testing.assert_close(SQUEEZENET(image), torch.from_numpy(pixels).permute(2, 0, 1).float())


@pytest.mark.parametrize("preprocess", [IMAGENET, SQUEEZENET, PIXELS])
def test_invert_undoes_normalise(preprocess):
    pixels = torch.rand(2, 3, 4, 4)
    torch.testing.assert_close(preprocess.invert(preprocess.normalise(pixels)), pixels)


def test_augmentation_depends_on_its_seed_alone():
    augment = Augment(size=16, then=PIXELS)
    image = noise(60, 40)
    first, again, other = (augment(image, seed) for seed in [(0, 1, 2), (0, 1, 2), (0, 1, 3)])
    assert first.shape == (3, 16, 16)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_half_of_the_images_are_mirrored():
    ramp = Image.fromarray(np.tile(np.arange(0, 250, 5, dtype=np.uint8), (50, 1)))
    augment = Augment(size=8, then=PIXELS)
    mirrored = [bool(out[0, 0, 0] > out[0, 0, -1]) for out in (augment(ramp, (i,)) for i in range(300))]
    assert 0.4 < np.mean(mirrored) < 0.6


def test_boxes_have_the_published_areas_and_ratios():
    random = np.random.default_rng(0)
    boxes = np.array([random_box((500, 375), (0.08, 1.0), (3 / 4, 4 / 3), random) for _ in range(2000)])
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    area = width * height / (500 * 375)
    assert boxes.min() >= 0
    assert boxes[:, 2].max() <= 500
    assert boxes[:, 3].max() <= 375
    assert area.min() > 0.075
    assert (width / height).min() > 0.74
    assert (width / height).max() < 1.35


def test_areas_are_uniform():
    random = np.random.default_rng(0)
    boxes = np.array([random_box((1000, 1000), (0.08, 1.0), (1.0, 1.0), random) for _ in range(2000)])
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / 1e6
    for quantile in (0.25, 0.5, 0.75):
        assert np.quantile(areas, quantile) == pytest.approx(0.08 + 0.92 * quantile, abs=0.04)


def test_a_shape_that_no_box_fits_falls_back_to_the_middle():
    assert random_box((1000, 10), (0.9, 1.0), (3 / 4, 4 / 3), np.random.default_rng(0)) == (493, 0, 506, 10)


def test_without_pillow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'axiograd\[images\]'"):
        pillow()


def test_grey_and_palette_images_become_rgb():
    grey = Image.fromarray(np.arange(16, dtype=np.uint8).reshape(4, 4))
    assert Preprocess(resize=None, crop=None)(grey).shape == (3, 4, 4)
    assert PIXELS(grey.convert("P")).shape == (3, 4, 4)


def test_a_grey_input_is_pictured_grey():
    """Also where the three colours of the weights have different means."""
    pixels = torch.linspace(0, 1, 16).reshape(1, 4, 4)
    seen = IMAGENET.picture(IMAGENET.normalise(pixels))
    torch.testing.assert_close(seen, pixels.expand(3, 4, 4))
