import pytest
import torch
from torch import nn

from axiograd.cli.inputs import choose
from axiograd.cli.samples import read_samples
from axiograd.cli.tables import TableOptions
from axiograd.datasets import DamagedImageError
from axiograd.errors import ConfigurationError, DataMissingError

PIXELS = choose("a.py:b", nn.Conv2d(3, 2, 3), preset="pixels", size=8)


def test_a_folder_per_class_has_labels(photos):
    samples = read_samples([str(photos)], PIXELS, TableOptions())
    assert samples.classes == ("cat", "dog", "owl")
    assert samples.labels == (0, 0, 1, 1, 2, 2)
    flat = read_samples([str(photos / "cat"), str(photos / "owl" / "owl0.png")], PIXELS, TableOptions())
    assert flat.labels is None
    assert flat.names == ("cat0.png", "cat1.png", "owl0.png")


def test_a_choice_keeps_names_labels_and_inputs_together(photos):
    samples = read_samples([str(photos)], PIXELS, TableOptions())
    chosen = samples.choose([5, 0]).choose([1, 0])
    assert chosen.names == ("cat/cat0.png", "owl/owl1.png")
    assert chosen.labels == (0, 2)
    ((places, x),) = chosen.batches(4, torch.empty(0))
    assert places == [0, 1]
    assert torch.equal(x, torch.stack([samples.read(0), samples.read(5)]))


def test_only_samples_of_one_shape_share_a_batch(photos):
    from PIL import Image

    with Image.open(photos / "cat" / "cat1.png") as image:
        image.resize((9, 7)).save(photos / "cat" / "cat1.png")
    as_they_are = choose("a.py:b", nn.Conv2d(3, 2, 3), preset="pixels")
    samples = read_samples([str(photos)], as_they_are, TableOptions())
    shapes = [tuple(x.shape) for _, x in samples.batches(8, torch.empty(0, dtype=torch.float64))]
    assert shapes == [(1, 3, 20, 24), (1, 3, 7, 9), (4, 3, 20, 24)]
    assert [places for places, _ in samples.batches(3, torch.empty(0), start=3)] == [[3, 4, 5]]


def test_data_sets_by_name():
    samples = read_samples(["shapes"], PIXELS, TableOptions(), split="train")
    assert samples.labels is not None
    assert samples.read(0).shape[0] == 3
    with pytest.raises(DataMissingError, match="data set 'shape'"):
        read_samples(["shape"], PIXELS, TableOptions())
    with pytest.raises(ConfigurationError, match="one table at a time"):
        read_samples(["a.csv", "b.csv"], PIXELS, TableOptions())


def test_an_image_too_long_to_be_resized_is_named_and_can_be_left_out(photos):
    from PIL import Image

    Image.new("L", (300_000, 1)).save(photos / "cat" / "stripe.png")
    large = choose("a.py:b", nn.Conv2d(3, 2, 3), preset="pixels", size=256)
    samples = read_samples([str(photos / "cat")], large, TableOptions())
    with pytest.raises(DamagedImageError, match=r"stripe\.png: an image of 300,000 × 1 pixels .* crop it first\.$"):
        samples.read(2)
    assert [len(places) for places, _ in samples.batches(4, torch.empty(0), skip_damaged=True)] == [2]
    assert samples.skipped == ["stripe.png"]
